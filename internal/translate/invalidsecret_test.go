package translate_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestInvalidSecretEnds checks that a Secret that was refused is no longer said to be so once it is valid, or gone.
func TestInvalidSecretEnds(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	gw := secretGateway("cert")
	w.Upsert(gw)
	says := func(step, reason, message string) {
		t.Helper()
		w.commit(t)
		s := w.statuses[kind.Gateway.Key(gw.Namespace, gw.Name)].Status.(*gwv1.GatewayStatus)
		for _, l := range s.Listeners {
			c := meta.FindStatusCondition(l.Conditions, string(gwv1.ListenerConditionResolvedRefs))
			if l.Name == secretListener(gw) && (c.Reason != reason || !strings.Contains(c.Message, message)) {
				t.Errorf("%s: %s %q, want %s %q", step, c.Reason, c.Message, reason, message)
			}
		}
	}
	const wrong, right = string(gwv1.ListenerReasonInvalidCertificateRef), string(gwv1.ListenerReasonResolvedRefs)
	refused := &kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Namespace: gw.Namespace, Name: "cert"}, Kind: kind.Secret.Name}
	secret := pemSecret(t, "cert")
	says("absent", wrong, "does not exist")
	w.Upsert(refused)
	says("refused", wrong, "is not valid; correct what is reported of it")
	w.Upsert(secret)
	says("valid", right, "")
	w.Upsert(refused)
	says("refused again", wrong, "is not valid")
	w.Delete(translate.Kind(kind.Secret.Name), gw.Namespace, "cert")
	says("deleted", wrong, "does not exist")
}

// secretListener is the name of the listener with a certificate.
func secretListener(gw *gwv1.Gateway) gwv1.SectionName {
	for _, l := range gw.Spec.Listeners {
		if l.TLS != nil {
			return l.Name
		}
	}
	return ""
}
