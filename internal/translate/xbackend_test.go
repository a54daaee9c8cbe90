package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// said is what the statuses of a kind say, in one text.
func (w *world) said(kind string) string {
	var all []string
	for _, s := range w.statuses {
		if s.Object.Kind == kind {
			all = append(all, fmt.Sprintf("%+v", s.Status))
		}
	}
	return strings.Join(all, "\n")
}

// TestManyAttributes: attributes beyond those that a span keeps are left out, and it is said.
func TestManyAttributes(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdService(1))
	p := &apisx.XTelemetryPolicy{}
	p.Namespace, p.Name = "default", "p"
	p.Spec.TargetRefs = []gwv1.LocalObjectReference{{Group: gwv1.GroupName, Kind: "Gateway", Name: "gw"}}
	p.Spec.Tracing.Mode = apisx.TracingModeEnabled
	p.Spec.Tracing.Provider.BackendRef = gwv1.BackendObjectReference{Name: "s1", Port: new(gwv1.PortNumber(80))}
	for i := range 100 {
		p.Spec.Tracing.Attributes = append(p.Spec.Tracing.Attributes, apisx.Attribute{Name: apisx.AttributeName(fmt.Sprint("a", i)), SourceType: apisx.AttributeSourceLiteral, LiteralValue: "x"})
	}
	w.Upsert(p)
	w.commit(t)
	listeners := 0
	for _, r := range w.config {
		if l := r.GetListener(); l != nil {
			listeners++
			if n := len(l.Tracing.GetAttributes()); n != 96 {
				t.Errorf("%s: %d attributes", l.Name, n)
			}
		}
	}
	if said := w.said("XTelemetryPolicy"); listeners == 0 || !strings.Contains(said, "spec.tracing.attributes: 4 are left out") {
		t.Errorf("%d listeners, said is %s", listeners, said)
	}
}

// TestUnreadCertificateOfXBackend: proxies that have the certificate go on with it, and others send nothing without.
func TestUnreadCertificateOfXBackend(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	x := &apisx.XBackend{}
	x.Namespace, x.Name = "default", "x"
	system := gwv1.WellKnownCACertificatesSystem
	x.Spec = apisx.BackendSpec{Type: apisx.BackendTypeExternalHostname, Port: apisx.BackendPort{Number: 443}, ExternalHostname: &apisx.ExternalHostnameBackend{Hostname: "a.example.com"},
		TLS: &apisx.BackendTLS{Mode: apisx.BackendTLSModeClientAndServer, ClientCertificateRef: &gwv1.SecretObjectReference{Name: "client"},
			Validation: &gwv1.BackendTLSPolicyValidation{Hostname: "a.example.com", WellKnownCACertificates: &system}}}
	w.Upsert(x)
	r := crowdRoute(1, "/")
	r.Spec.Rules[0].BackendRefs[0].BackendObjectReference = gwv1.BackendObjectReference{Group: new(gwv1.Group(gwx.GroupName)), Kind: new(gwv1.Kind("XBackend")), Name: "x"}
	w.Upsert(r)
	w.Upsert(&translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "client"}})
	w.commit(t)
	if said := w.said("XBackend"); !strings.Contains(said, "Secret default/client could not be read yet") || !strings.Contains(said, "until then proxies without its certificate send no request to the XBackend") {
		t.Errorf("said is %s", said)
	}
	const key = "Secret/default/client"
	shown := func() (keys []string) {
		for _, r := range w.config {
			if b := r.GetBackend(); b != nil {
				keys = append(keys, b.GetTls().GetCertificate())
			}
		}
		return keys
	}
	certificate := w.config[config.ID{Kind: config.KindCertificate, Key: key}]
	if got := shown(); !slices.Equal(got, []string{key}) || certificate == nil || !certificate.Unread() {
		t.Errorf("backends show %q, and the certificate is %v", got, certificate)
	}
	w.Delete(translate.KindSecret, "default", "client")
	w.commit(t)
	if got := shown(); len(got) != 0 || w.config[config.ID{Kind: config.KindCertificate, Key: key}] != nil {
		t.Errorf("once the Secret is known not to be there, backends show %q", got)
	}
}

// TestXBackendAbroad: the Gateways that reach an XBackend do not wait for the namespace of the Secret that it refers to: whoever owns an XBackend would end all changes of a
// Gateway that others use, too.
func TestXBackendAbroad(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	for _, n := range []string{"default", "certs"} {
		w.Upsert(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	x := &apisx.XBackend{}
	x.Namespace, x.Name = "default", "x"
	system := gwv1.WellKnownCACertificatesSystem
	x.Spec = apisx.BackendSpec{Type: apisx.BackendTypeExternalHostname, Port: apisx.BackendPort{Number: 443}, ExternalHostname: &apisx.ExternalHostnameBackend{Hostname: "a.example.com"},
		TLS: &apisx.BackendTLS{Mode: apisx.BackendTLSModeClientAndServer, ClientCertificateRef: &gwv1.SecretObjectReference{Name: "client", Namespace: new(gwv1.Namespace("certs"))},
			Validation: &gwv1.BackendTLSPolicyValidation{Hostname: "a.example.com", WellKnownCACertificates: &system}}}
	w.Upsert(x)
	undecided := func(what string, want ...string) {
		t.Helper()
		w.commit(t)
		if got := w.Undecided(); !slices.Equal(got, want) {
			t.Errorf("%s: undecided are %q, want %q", what, got, want)
		}
	}
	w.SetInstalled(translate.Installed{Kinds: []translate.Kind{"HTTPRoute", "GRPCRoute"}, UnreadNamespaces: []string{"certs"}})
	undecided("nobody reaches it")
	r := crowdRoute(1, "/")
	r.Spec.Rules[0].BackendRefs[0].BackendObjectReference = gwv1.BackendObjectReference{Group: new(gwv1.Group(gwx.GroupName)), Kind: new(gwv1.Kind("XBackend")), Name: "x"}
	w.Upsert(r)
	undecided("a route does")
	w.SetInstalled(translate.Installed{Kinds: []translate.Kind{"HTTPRoute", "GRPCRoute"}})
	undecided("the namespace can be read")
}
