package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGatewayParametersPages has moongate check accept the GatewayParameters that pages show: they fit the schema. A test of translate/parameters has the rest.
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
