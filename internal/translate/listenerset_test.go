package translate_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// TestListenerSetServedBesideInvalidListener: where only a listener of the Gateway's own is not valid, a ListenerSet is not Programmed, and says that it is served.
func TestListenerSetServedBesideInvalidListener(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw"}}
	gw.Spec.GatewayClassName = "moongate"
	gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: new(gwv1.NamespacesFromAll)}}
	gw.Spec.Listeners = []gwv1.Listener{{Name: "https", Port: 8443, Protocol: gwv1.HTTPSProtocolType,
		TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "absent"}}}}}
	w.Upsert(gw)
	set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"}}
	set.Spec.ParentRef = gwv1.ParentGatewayReference{Name: "gw"}
	set.Spec.Listeners = []gwv1.ListenerEntry{{Name: "http", Port: 8080, Protocol: gwv1.HTTPProtocolType}}
	w.Upsert(set)
	w.commit(t)
	s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "ListenerSet", Namespace: "default", Name: "set"}].Status.(*gwv1.ListenerSetStatus)
	programmed := meta.FindStatusCondition(s.Conditions, "Programmed")
	served := w.config[config.ID{Kind: config.KindListener, Key: "default/gw/default/set/http"}] != nil
	if programmed.Reason != "ParentNotProgrammed" || !served || !meta.IsStatusConditionTrue(s.Listeners[0].Conditions, "Programmed") ||
		!strings.HasSuffix(programmed.Message, "Listeners of this ListenerSet that are programmed in status.listeners are served all the same") {
		t.Errorf("served %t: %+v", served, programmed)
	}
}
