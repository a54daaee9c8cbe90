package translate_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// listenerSetWorld has a Gateway, and a ListenerSet of it that refers to Secret certs/cert.
func listenerSetWorld(t *testing.T) (w *world, gw *gwv1.Gateway) {
	w = newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	for _, n := range []string{"default", "tenant", "certs"} {
		w.Upsert(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	gw = crowdGateway(1)
	gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: new(gwv1.NamespacesFromAll)}}
	w.Upsert(gw)
	set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "set"}}
	set.Spec.ParentRef = gwv1.ParentGatewayReference{Name: "gw", Namespace: new(gwv1.Namespace("default"))}
	set.Spec.Listeners = []gwv1.ListenerEntry{{Name: "https", Port: 8443, Protocol: gwv1.HTTPSProtocolType,
		TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "cert", Namespace: new(gwv1.Namespace("certs"))}}}}}
	w.Upsert(set)
	w.commit(t)
	return w, gw
}

func grantOfCerts(fromKind gwv1.Kind, namespace string) *gwv1.ReferenceGrant {
	return &gwv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "certs", Name: "from-" + namespace}, Spec: gwv1.ReferenceGrantSpec{
		From: []gwv1.ReferenceGrantFrom{{Group: gwv1.GroupName, Kind: fromKind, Namespace: gwv1.Namespace(namespace)}},
		To:   []gwv1.ReferenceGrantTo{{Kind: "Secret"}}}}
}

// TestUndecidedByOwnReferences: a Gateway keeps what it has only for what its owner refers to in a namespace that cannot be read.
func TestUndecidedByOwnReferences(t *testing.T) {
	w, gw := listenerSetWorld(t)
	w.SetInstalled(translate.Installed{Kinds: []translate.Kind{"HTTPRoute", "GRPCRoute"}, UnreadNamespaces: []string{"certs"}})
	ref := gwv1.SecretObjectReference{Name: "cert", Namespace: new(gwv1.Namespace("certs"))}
	own, client := gw.DeepCopy(), gw.DeepCopy()
	own.Spec.Listeners = append(own.Spec.Listeners, gwv1.Listener{Name: "https", Port: 443, Protocol: gwv1.HTTPSProtocolType,
		TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{ref}}})
	client.Spec.TLS = &gwv1.GatewayTLSConfig{Backend: &gwv1.GatewayBackendTLS{ClientCertificateRef: &ref}}
	for _, test := range []struct {
		what    string
		gateway *gwv1.Gateway
		want    []string
	}{
		{"a ListenerSet", gw, nil},
		{"a listener of its own", own, []string{"default/gw"}},
		{"its client certificate", client, []string{"default/gw"}},
		{"a ListenerSet again", gw, nil},
	} {
		w.Upsert(test.gateway)
		w.commit(t)
		if got := w.Undecided(); !slices.Equal(got, test.want) {
			t.Errorf("%s: undecided are %q, want %q", test.what, got, test.want)
		}
	}
}

// TestGatewaysWithPermittedReferences: a Gateway waits for no Secret that its listeners may not use; where a ListenerSet may, it is shared.
func TestGatewaysWithPermittedReferences(t *testing.T) {
	w, gw := listenerSetWorld(t)
	secret := kind.Secret.Key("certs", "cert")
	expect := func(what string, want ...string) {
		t.Helper()
		w.commit(t)
		if got := w.GatewaysWith(secret); !slices.Equal(got, want) {
			t.Errorf("%s: %q wait, want %q", what, got, want)
		}
	}
	expect("without a grant")
	w.Upsert(grantOfCerts("Gateway", "tenant"))
	expect("with one for another kind")
	w.Upsert(grantOfCerts("ListenerSet", "tenant"))
	expect("with a grant", "default/gw")
	if got := w.SharedWith(secret); !slices.Equal(got, []string{"default/gw"}) {
		t.Errorf("shared are %q", got)
	}

	w.Delete(translate.KindListenerSet, "tenant", "set")
	own := gw.DeepCopy()
	own.Spec.Listeners = append(own.Spec.Listeners, gwv1.Listener{Name: "https", Port: 443, Protocol: gwv1.HTTPSProtocolType,
		TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "cert", Namespace: new(gwv1.Namespace("certs"))}}}})
	w.Upsert(own)
	expect("a listener of its own, without a grant")
	w.Upsert(grantOfCerts("Gateway", "default"))
	expect("a listener of its own", "default/gw")
	if got := w.SharedWith(secret); len(got) > 0 {
		t.Errorf("without ListenerSets shared are %q", got)
	}
}
