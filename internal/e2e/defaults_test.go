package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDefaultsPage checks docs/defaults.md against the flags and the constants that are exported.
func TestDefaultsPage(t *testing.T) {
	t.Parallel()
	page := document(t, "defaults.md")
	for verb, least := range map[string]int{"run": 5, "proxy": 9, "controller": 10} {
		help, _, _ := moongate(verb, "-h")
		_, section, _ := strings.Cut(page, "| flag of `"+verb+"`")
		section, _, _ = strings.Cut(section, "\n\n")
		flags := regexp.MustCompile(`(?m)^ +(--[a-z-]+) .*?(?:\(default "?([^")]+)"?\))?$`).FindAllStringSubmatch(help, -1)
		if len(flags) < least {
			t.Fatalf("%d flags found in\n%s", len(flags), help)
		}
		for _, f := range flags {
			if slices.Contains([]string{"proxy --controller", "proxy --gateway", "controller --image"}, verb+" "+f[1]) {
				continue // required
			}
			row := regexp.MustCompile("(?m)^\\| `" + f[1] + "` \\|.*$").FindString(section)
			if value := strings.TrimPrefix(f[2], "default: "); row == "" || !strings.Contains(row, value) {
				t.Errorf("docs/defaults.md has %q for %s of %s, whose default is %q", row, f[1], verb, value)
			}
		}
	}
	for _, want := range []string{
		fmt.Sprintf("| connect to an endpoint *, the TLS handshake included | %.0f s |", upstream.DefaultConnectTimeout.Seconds()),
		fmt.Sprintf("| idle connection to an endpoint | %.0f s |", upstream.DefaultIdleTimeout.Seconds()),
		fmt.Sprintf("at most %d are kept", upstream.DefaultMaxIdle),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/defaults.md lacks %q", want)
		}
	}
}

// TestReasonsAreTold checks that docs/life-of-a-request.md tells of every reason word.
func TestReasonsAreTold(t *testing.T) {
	t.Parallel()
	page := document(t, "life-of-a-request.md")
	for _, r := range observe.Reasons() {
		if !strings.Contains(page, "`"+r.Word+"`") {
			t.Errorf("docs/life-of-a-request.md does not tell when %s (%s)", r.Word, r.Description)
		}
	}
}
