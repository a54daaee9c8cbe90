package writer

import (
	"os"
	"strings"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestFinalizerRemedy checks that the installation guide names the finalizer that removed controllers leave, and how to take it away: without
// them nothing else tells why a GatewayClass does not go.
func TestFinalizerRemedy(t *testing.T) {
	text, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		gwv1.GatewayClassFinalizerGatewaysExist,
		`kubectl patch gatewayclass moongate --type=merge --patch '{"metadata":{"finalizers":null}}'`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/install.md does not have %q", want)
		}
	}
}
