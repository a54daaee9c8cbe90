package provision

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/translate"
)

var update = flag.Bool("update", false, "write what is computed into the golden files; then read every difference")

var settings = Settings{
	ControllerName: "moongate.dev/gateway-controller", Image: "example.org/moongate:v1",
	ControllerAddress: "moongate-controller.moongate-system.svc:9443", CAPEM: []byte("certificate\n"),
}

// input is the first document of a golden file.
type input struct {
	Spec     translate.ProxySpec
	Services []*corev1.Service // that run already
}

// TestGolden compares the objects of each ProxySpec in testdata with those that follow it there.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut(string(text), "\n---\n")
			var in input
			if err := yaml.UnmarshalStrict([]byte(head), &in); err != nil {
				t.Fatal(err)
			}
			s := settings
			s.Services = in.Services
			got := print(t, &in.Spec, s)
			if *update {
				if err := os.WriteFile(file, []byte(head+"\n---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != rest {
				t.Errorf("what is computed differs from the file (-update writes it); got\n%s", got)
			}
		})
	}
}

// print is the objects of a ProxySpec as YAML, or the error.
func print(t *testing.T, spec *translate.ProxySpec, s Settings) string {
	t.Helper()
	objects, err := Objects(spec, s)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var out bytes.Buffer
	for i, object := range objects {
		tree, err := encode(object)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.String()
}
