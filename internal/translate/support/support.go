// Package support says what of the Gateway API this version can do: the features, and
// the versions of the CRDs. It exists so that what is claimed stands in one place.
//
// It must never import translate, nor anything that translate must not.
package support

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// everywhere is what this version can do; conformance suites choose their tests by it.
var everywhere = []features.FeatureName{
	features.SupportBackendTLSPolicy,
	features.SupportBackendTLSPolicySANValidation,
	features.SupportClusterTrustBundle,
	features.SupportGRPCRoute,
	features.SupportGRPCRouteNamedRouteRule,
	features.SupportGRPCRouteRequestHeaderModifier,
	features.SupportGateway,
	features.SupportGatewayAddressEmpty,
	features.SupportGatewayAddressRoutability,
	features.SupportGatewayBackendClientCertificate,
	features.SupportGatewayFrontendClientCertificateValidation,
	features.SupportGatewayFrontendClientCertificateValidationInsecureFallback,
	features.SupportGatewayHTTPListenerIsolation,
	features.SupportGatewayHTTPSListenerDetectMisdirectedRequests,
	features.SupportGatewayListenerFilters,
	features.SupportGatewayPort8080,
	features.SupportGatewayRouteHostnameIntersectionPrecedence,
	features.SupportGatewayStaticAddresses,
	features.SupportHTTPRoute,
	features.SupportHTTPRoute303RedirectStatusCode,
	features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
	features.SupportHTTPRouteBackendProtocolH2C,
	features.SupportHTTPRouteBackendProtocolWebSocket,
	features.SupportHTTPRouteBackendRequestHeaderModification,
	features.SupportHTTPRouteBackendTimeout,
	features.SupportHTTPRouteBackendURLRewrite,
	features.SupportHTTPRouteCORS,
	features.SupportHTTPRouteDestinationPortMatching,
	features.SupportHTTPRouteHostRewrite,
	features.SupportHTTPRouteMethodMatching,
	features.SupportHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRoutePathRedirect,
	features.SupportHTTPRoutePathRewrite,
	features.SupportHTTPRoutePortRedirect,
	features.SupportHTTPRouteQueryParamMatching,
	features.SupportHTTPRouteRequestMirror,
	features.SupportHTTPRouteRequestMultipleMirrors,
	features.SupportHTTPRouteRequestPercentageMirror,
	features.SupportHTTPRouteRequestTimeout,
	features.SupportHTTPRouteResponseHeaderModification,
	features.SupportHTTPRouteRetryCodes,
	features.SupportHTTPRouteRetryConnectionError,
	features.SupportHTTPRouteSchemeRedirect,
	features.SupportListenerSet,
	features.SupportReferenceGrant,
	features.SupportTCPRoute,
	features.SupportTLSRoute,
	features.SupportTLSRouteModeMixed,
	features.SupportTLSRouteModeTerminate,
	features.SupportUDPRoute,
}

// inCluster is what else it can do where Gateways run in proxies of their own.
var inCluster = []features.FeatureName{features.SupportGatewayAddressRoutabilityCluster, features.SupportGatewayInfrastructure}

// experimental are the features of which API servers drop the fields of Gateways unless HasExperimentalFields.
var experimental = []features.FeatureName{features.SupportGatewayAddressRoutability, features.SupportGatewayAddressRoutabilityCluster, features.SupportGatewayListenerFilters}

// Features are what can be done, sorted by name, without those about a kind that lacks
// reports as not installed, which is nil where every one is; and without those of fields that are experimental where these are not kept.
func Features(cluster bool, lacks func(gwv1.Kind) bool, experiments bool) []gwv1.SupportedFeature {
	list := slices.Clone(everywhere)
	if cluster {
		list = append(list, inCluster...)
	}
	out := []gwv1.SupportedFeature{}
	for _, f := range list {
		if !experiments && slices.Contains(experimental, f) {
			continue
		}
		if lacks == nil || !lacks(kindOf(f)) {
			out = append(out, gwv1.SupportedFeature{Name: gwv1.FeatureName(f)})
		}
	}
	slices.SortFunc(out, func(a, b gwv1.SupportedFeature) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// kindOf returns the kind that a feature is about, whose name its own begins with; "" for no kind.
func kindOf(f features.FeatureName) gwv1.Kind {
	longest := ""
	for _, k := range kind.All() {
		if k.Optional && len(k.Name) > len(longest) && strings.HasPrefix(string(f), k.Name) {
			longest = k.Name
		}
	}
	return gwv1.Kind(longest)
}

// bundles are the versions that are supported, release candidates among them.
var bundles = regexp.MustCompile(`^v1\.[67]\.(0|[1-9][0-9]{0,4})(-[0-9A-Za-z.-]+)?$`)

// HasExperimentalFields reports whether the CRD of Gateways is known to have the fields "routability" of GEP-5093 and "filters" of GEP-5224: they are of the
// experimental channel, and what a CRD does not have an API server drops without a word.
func HasExperimentalFields(bundleVersion, channel string) bool {
	return channel == "experimental" && strings.HasPrefix(bundleVersion, "v1.7.") && bundles.MatchString(bundleVersion)
}

const bundleNames = "v1.6 or v1.7"

// CRD is a CustomResourceDefinition of the Gateway API.
type CRD struct{ Name, BundleVersion string }

// Unsupported says which CRDs are of a bundle that is not known to work, or nil.
func Unsupported(crds []CRD) *condition.Problem {
	remedy := "install bundle " + bundleNames + "; until then everything is tried that is there"
	if len(crds) == 0 {
		return condition.NewProblem(gwv1.GatewayClassReasonUnsupportedVersion, "", remedy, "no CustomResourceDefinition of the Gateway API was found")
	}
	strange := false
	byVersion := map[string][]string{}
	for _, c := range crds {
		strange = strange || !bundles.MatchString(c.BundleVersion)
		byVersion[c.BundleVersion] = append(byVersion[c.BundleVersion], c.Name)
	}
	if !strange {
		return nil
	}
	var found []string
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		names := byVersion[version]
		slices.Sort(names)
		what := fmt.Sprintf("bundle %q", version)
		if version == "" {
			what = "no bundle"
		}
		found = append(found, what+" ("+strings.Join(names, ", ")+")")
	}
	return condition.NewProblem(gwv1.GatewayClassReasonUnsupportedVersion, "", remedy,
		"the CustomResourceDefinitions of the Gateway API are of %s", strings.Join(found, ", "))
}
