package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// TestGatewayParametersPages has moongate check accept the GatewayParameters that pages show, as those of a GatewayClass, which may have all fields.
func TestGatewayParametersPages(t *testing.T) {
	t.Parallel()
	const object = "apiVersion: moongate.dev/v1alpha1\nkind: GatewayParameters\n"
	for page, want := range map[string]int{"gatewayparameters.md": 6, "access-log.md": 1, "kubernetes.md": 2, "tasks/client-address.md": 1, "tasks/external-hosts.md": 1} {
		blocks := slices.DeleteFunc(fenced(t, "docs/"+page, "yaml"), func(b block) bool {
			return !strings.HasPrefix(b.content, object) && !strings.HasPrefix(b.content, "classOnly:\n")
		})
		if len(blocks) != want {
			t.Errorf("%s has %d blocks, want %d", page, len(blocks), want)
		}
		for _, block := range blocks {
			text := block.use()
			if !strings.HasPrefix(text, object) {
				text = object + "metadata:\n  name: class\nspec:\n  " + strings.ReplaceAll(text, "\n", "\n  ")
			}
			var p v1alpha1.GatewayParameters
			if err := yaml.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("%s: %v", block, err)
			}
			text += fmt.Sprintf("\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata:\n  name: moongate\nspec:\n  controllerName: moongate.dev/gateway-controller\n"+
				"  parametersRef:\n    group: moongate.dev\n    kind: GatewayParameters\n    name: %s\n    namespace: %s\n", p.Name, cmp.Or(p.Namespace, "default"))
			file := filepath.Join(t.TempDir(), "parameters.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := moongate("check", "-f", file); code != 0 {
				t.Errorf("%s: %s%s in\n%s", block, out, errs, block.content)
			}
		}
	}
}
