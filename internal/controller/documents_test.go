package controller

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/deliver/auth"
)

// TestRemovalIsDocumented checks that docs/install.md removes what no owner and no release removes.
func TestRemovalIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl delete secret/" + auth.SecretName + " lease/" + LeaseName + " --namespace moongate-system",
		"kubectl delete services --all-namespaces --selector " + v1alpha1.LabelXBackend + "`",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/install.md lacks %q", want)
		}
	}
}
