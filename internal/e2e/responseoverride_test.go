package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskResponseOverride does what the page says, and edits the ConfigMap: the page is another one then, and 500 without it.
func TestTaskResponseOverride(t *testing.T) {
	t.Parallel()
	asExample(t, "response-override")
	b := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		status, known := map[string]int{"/broken": 500, "/account": 401, "/nowhere": 404}[r.URL.Path]
		if known {
			w.WriteHeader(status)
		}
		return known
	})
	runTask(t, "response-override", map[int]*backend{3000: b})

	text, err := os.ReadFile("../../examples/backendtrafficpolicy/response-override.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	manifest := exampleAt(string(text), port, b)
	g := start(t, map[string]string{"response-override.yaml": manifest})
	shows := func(status int, body string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("a response with status %d and %q", status, body), func() bool {
			got := ask{method: "GET", url: local(port, "/broken")}.do(t)
			return got.StatusCode == status && strings.Contains(got.body, body)
		})
	}
	shows(503, "Something went wrong (503)")
	g.write("response-override.yaml", strings.Replace(manifest, "Something went wrong", "Back at noon", 1))
	shows(503, "Back at noon (503)")
	before, rest, _ := strings.Cut(manifest, "apiVersion: v1\nkind: ConfigMap")
	_, after, _ := strings.Cut(rest, "---\n")
	g.write("response-override.yaml", before+after)
	shows(500, "policy_invalid")
	g.write("response-override.yaml", manifest)
	shows(503, "Something went wrong (503)")
}
