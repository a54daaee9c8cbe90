package translate_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
)

// TestBoundsOfClientAuthorities checks that the reference that goes beyond a bound is refused, and that those before it are trusted, but for
// authorities of which it has the revocation lists.
func TestBoundsOfClientAuthorities(t *testing.T) {
	example := readPEM(t, "example.crt")
	authority := readPEM(t, "authority.crt")
	fits := strings.Repeat(example, certificate.MaxAuthorityBytes/len(example))
	large, subjectBytes := named(t, 30000)
	rest := certificate.MaxSubjectBytes - subjectBytes - (subjectBytes - 30000) // what the name of another may have
	last, _ := named(t, rest)
	over, _ := named(t, rest+1)
	for name, tc := range map[string]struct {
		first, second string
		trusted       int
		lists         string // of the second
	}{
		"the most bytes":                                 {fits[len(example):], example, 2, ""},
		"more bytes":                                     {fits, readPEM(t, "other.crt"), 1, ""},
		"the most bytes of subjects":                     {large, last, 2, ""},
		"a byte more of subjects":                        {large, over, 1, ""},
		"the same again, which is not sent twice":        {large, large, 1, ""},
		"more bytes, and lists of the first's authority": {authority, fits[len(example):] + authority, 0, readPEM(t, "authority.crl")},
	} {
		w := newWorld()
		w.Upsert(ownClass("moongate"))
		gw := secretGateway("cert")
		gw.Spec.Listeners = slices.DeleteFunc(gw.Spec.Listeners, func(l gwv1.Listener) bool { return l.Protocol != gwv1.HTTPSProtocolType })
		gw.Spec.TLS = &gwv1.GatewayTLSConfig{Frontend: &gwv1.FrontendTLSConfig{Default: gwv1.TLSConfig{Validation: &gwv1.FrontendTLSValidation{
			CACertificateRefs: []gwv1.ObjectReference{{Kind: "ConfigMap", Name: "first"}, {Kind: "ConfigMap", Name: "second"}}}}}}
		w.Upsert(gw)
		w.Upsert(pemSecret(t, "cert"))
		for object, text := range map[string]string{"first": tc.first, "second": tc.second} {
			w.Upsert(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: gw.Namespace, Name: object}, Data: map[string]string{kind.AuthoritiesKey: text}})
		}
		if tc.lists != "" {
			w.Upsert(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: gw.Namespace, Name: "second"},
				Data: map[string]string{kind.AuthoritiesKey: tc.second, kind.RevocationsKey: tc.lists}})
		}
		w.commit(t)
		for id, r := range w.config {
			if id.Kind == config.KindListener && len(r.GetListener().GetClientValidation().GetAuthorities()) != tc.trusted {
				t.Errorf("%s: %v, want %d authorities", name, r, tc.trusted)
			}
		}
		s := w.statuses[kind.Gateway.Key(gw.Namespace, gw.Name)].Status.(*gwv1.GatewayStatus)
		resolved := meta.FindStatusCondition(s.Listeners[0].Conditions, string(gwv1.ListenerConditionResolvedRefs))
		refused := resolved.Reason == string(gwv1.ListenerReasonInvalidCACertificateRef) &&
			strings.Contains(resolved.Message, "caCertificateRefs[1]: with those before it there are") && strings.Contains(resolved.Message, "there may be 524288 and 49152")
		if want := tc.trusted < 2 && tc.first != tc.second; refused != want {
			t.Errorf("%s: ResolvedRefs %s: %s; refused %v, want %v", name, resolved.Reason, resolved.Message, refused, want)
		}
	}
}

// named returns a certificate in PEM whose name has so many bytes, and how many its subject has in a handshake.
func named(t *testing.T, bytes int) (text string, subjectBytes int) {
	t.Helper()
	cert, _ := testkit.Certificate{Change: func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: strings.Repeat("a", bytes)} }}.PEM(t)
	block, _ := pem.Decode(cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return string(cert), 2 + len(parsed.RawSubject)
}
