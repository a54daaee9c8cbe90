// Package support defines what this version supports of the Gateway API: the features, and the versions of the CRDs. It exists so
// that all claims are in one place.
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

// everywhere are the features that are always supported; conformance suites select their tests by them.
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

// inCluster are the features that are also supported if Gateways run in their own proxies.
var inCluster = []features.FeatureName{features.SupportGatewayAddressRoutabilityCluster, features.SupportGatewayInfrastructure}

// experimental are the features whose fields of Gateways an API server drops, unless HasExperimentalFields.
var experimental = []features.FeatureName{features.SupportGatewayAddressRoutability, features.SupportGatewayAddressRoutabilityCluster, features.SupportGatewayListenerFilters}

// Features returns the supported features, sorted by name. It omits features of a kind that lacks reports as not installed (lacks is
// nil if all are), and features of experimental fields if experiments is false.
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

// kindOf returns the kind of a feature, which is the prefix of its name; "" if none.
func kindOf(f features.FeatureName) gwv1.Kind {
	longest := ""
	for _, k := range kind.All() {
		if k.Optional && len(k.Name) > len(longest) && strings.HasPrefix(string(f), k.Name) {
			longest = k.Name
		}
	}
	return gwv1.Kind(longest)
}

// bundles matches the supported versions, including release candidates.
var bundles = regexp.MustCompile(`^v1\.[67]\.(0|[1-9][0-9]{0,4})(-[0-9A-Za-z.-]+)?$`)

// HasExperimentalFields reports whether the CRD of Gateways is known to have the fields "routability" of GEP-5093 and "filters" of
// GEP-5224: they are in the experimental channel, and an API server silently drops fields that a CRD does not have.
func HasExperimentalFields(bundleVersion, channel string) bool {
	return channel == "experimental" && strings.HasPrefix(bundleVersion, "v1.7.") && bundles.MatchString(bundleVersion)
}

const bundleNames = "v1.6 or v1.7"

// CRD is a CustomResourceDefinition of the Gateway API.
type CRD struct{ Name, BundleVersion string }

// Unsupported returns the problem of CRDs from a bundle that is not known to work, or nil.
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
