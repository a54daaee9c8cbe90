package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// certificateRef is one of certificateRefs.
type certificateRef struct {
	Field   string
	Group   string
	Kind    string
	Secret  name
	Unknown bool // not a Secret of the core group
}

func (l *listener) readTLS(gateway name, gw *gwv1.Gateway, spec *gwv1.Listener) {
	l.checkFrontendValidation(gw.Spec.TLS)
	if spec.TLS == nil {
		return
	}
	if mode := value(spec.TLS.Mode, gwv1.TLSModeTerminate); mode != gwv1.TLSModeTerminate && mode != "" {
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".tls.mode", "use Terminate", "mode %q cannot be used with protocol HTTPS", mode)
	}
	if len(spec.TLS.Options) > 0 {
		options := slices.Sorted(maps.Keys(spec.TLS.Options))
		l.Notes = append(l.Notes, fmt.Sprintf("%s.tls.options: ignored, there are none that are known: %q", l.Field, options))
	}
	for i, ref := range spec.TLS.CertificateRefs {
		group, kind := string(value(ref.Group, corev1.GroupName)), string(value(ref.Kind, gwv1.Kind(KindSecret)))
		l.Certificates = append(l.Certificates, certificateRef{
			Field: fmt.Sprintf("%s.tls.certificateRefs[%d]", l.Field, i), Group: group, Kind: kind,
			Secret:  name{string(value(ref.Namespace, gwv1.Namespace(gateway.Namespace))), string(ref.Name)},
			Unknown: group != corev1.GroupName || kind != string(KindSecret),
		})
	}
}

// checkFrontendValidation refuses a listener whose clients would have to show
// certificates: it must not be served without asking for them.
func (l *listener) checkFrontendValidation(tls *gwv1.GatewayTLSConfig) {
	if tls == nil || tls.Frontend == nil {
		return
	}
	field, validation := "spec.tls.frontend.default.validation", tls.Frontend.Default.Validation
	for i, p := range tls.Frontend.PerPort {
		if p.Port == l.Port {
			field, validation = fmt.Sprintf("spec.tls.frontend.perPort[%d].tls.validation", i), p.TLS.Validation
		}
	}
	if validation != nil && l.Invalid == nil {
		l.Invalid = condition.NewProblem(gwv1.ListenerReasonUnsupportedValue, field, "remove it to serve the listener to every client",
			"validation of client certificates is not supported yet")
	}
}

// resolveCertificates returns the keys of the certificates that can be used and the
// first thing wrong with the others. A listener with one good certificate is served.
func (t *Translator) resolveCertificates(v *incremental.View, k listenerKey, l *listener) (keys []string, first *condition.Problem) {
	if len(l.Certificates) == 0 {
		return nil, condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, l.Field+".tls.certificateRefs",
			"add a reference to a Secret of type "+string(corev1.SecretTypeTLS), "a listener of protocol HTTPS needs a certificate")
	}
	for _, ref := range l.Certificates {
		key, p := t.resolveCertificate(v, k, ref)
		switch {
		case p == nil && !slices.Contains(keys, key):
			keys = append(keys, key)
		case p != nil && first == nil:
			first = p
		}
	}
	return keys, first
}

func (t *Translator) resolveCertificate(v *incremental.View, k listenerKey, ref certificateRef) (string, *condition.Problem) {
	from := referrer{gwv1.GroupName, string(KindGateway), k.Gateway}
	if ref.Unknown {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".kind", "refer to a Secret",
			"%s of group %q cannot hold a certificate", ref.Kind, ref.Group)
	}
	if !t.permitted(v, from, ref.Group, ref.Kind, ref.Secret) {
		return "", condition.NewProblem(gwv1.ListenerReasonRefNotPermitted, ref.Field+".namespace", grantRemedy(from, ref.Kind, ref.Secret),
			"no ReferenceGrant permits the reference to Secret %s", ref.Secret)
	}
	pair, exists := incremental.Fetch(v, t.keyPairs, ref.Secret)
	if !exists {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name", "create it or correct the name",
			"Secret %s does not exist", ref.Secret)
	}
	if pair.Wrong != "" {
		return "", condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, ref.Field+".name", "correct the Secret",
			"Secret %s: %s", ref.Secret, pair.Wrong)
	}
	return config.SecretKey(ref.Secret.Namespace, ref.Secret.Name), nil
}

func (t *Translator) declareCertificates() {
	t.certUsers = incremental.NewIndex(t.serving, "listeners by certificate",
		func(_ listenerKey, l *config.Listener) []string { return l.Certificates })
	t.certificates = incremental.Map(t.engine, "certificate", t.keyPairs,
		func(v *incremental.View, n name, pair *keyPair) (*config.Certificate, bool) {
			key := config.SecretKey(n.Namespace, n.Name)
			if incremental.Count(v, t.certUsers, key) == 0 {
				return nil, false
			}
			return &config.Certificate{Key: key, ChainPem: pair.Chain, KeyPem: pair.Key}, true
		}, sameMessage[*config.Certificate])
}

// oneLine keeps messages of other packages on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
