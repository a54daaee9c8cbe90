package listener

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestOfSet: only HTTP is served for a ListenerSet, and nothing waits for the Secrets of a listener that is not.
func TestOfSet(t *testing.T) {
	set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set"}, Spec: gwv1.ListenerSetSpec{Listeners: []gwv1.ListenerEntry{
		{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType},
		{Name: "https", Port: 443, Protocol: gwv1.HTTPSProtocolType,
			TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "cert"}}}},
	}}}
	list := OfSet(set, &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "gw"}}, Options{Routes: func(p gwv1.ProtocolType) []gwv1.Kind { return []gwv1.Kind{"HTTPRoute"} }})
	if len(list) != 2 || list[0].Invalid != nil {
		t.Fatalf("got %+v", list)
	}
	if l := list[1]; l.Invalid == nil || l.Invalid.Reason != string(gwv1.ListenerReasonUnsupportedProtocol) || len(l.Certificates) != 0 {
		t.Errorf("HTTPS: %+v, certificates %v", l.Invalid, l.Certificates)
	}
}
