package charts

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what was copied or rendered into the repository anew")

// header begins deploy/moongate.yaml.
const header = `# What the chart moongate renders by default, without Helm. Rendered by ` + "`make manifest`" + `; do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: moongate-system
`

// TestManifest checks that deploy/moongate.yaml is what the chart renders today.
func TestManifest(t *testing.T) {
	r := mustRender(t, "moongate", nil)
	// It is kubectl that people manage it with.
	text := strings.ReplaceAll(header+"---\n"+strings.Join(r.documents, "---\n"), "managed-by: Helm", "managed-by: kubectl")
	file := filepath.Join(root, "deploy/moongate.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, file) != text {
		t.Error("deploy/moongate.yaml is not what the chart renders: run make manifest")
	}
	for _, document := range strings.Split(text, "---\n") {
		decode(t, document)
	}
}
