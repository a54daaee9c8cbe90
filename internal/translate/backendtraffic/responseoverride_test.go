package backendtraffic

import (
	"fmt"
	"strings"
	"testing"
)

// TestBoundsOfResponseOverrides: what a policy says is in every rule of its routes, so there may not be much of it.
func TestBoundsOfResponseOverrides(t *testing.T) {
	override := func(statuses, body int) string {
		return "{match: {statusCodes: [" + strings.Repeat("{value: 500},", statuses) + "]}, response: {body: {inline: " + strings.Repeat("b", body) + "}}}"
	}
	for name, c := range map[string]struct {
		list []string
		want string
	}{
		"as many as there may be":   {many(override(50, 1024), 32), ""},
		"one more":                  {many(override(1, 1), 33), "spec.responseOverride: it has 33 entries"},
		"too many statuses":         {[]string{override(51, 1)}, "spec.responseOverride[0].match.statusCodes: it has 51 entries"},
		"too much of bodies":        {many(override(1, 4096), 9), "spec.responseOverride: its bodies have 36864 bytes together"},
		"as much as there may be":   {many(override(1, 4096), 8), ""},
		"too much of a single body": {[]string{override(1, 4097)}, "spec.responseOverride[0].response.body.inline: it has 4097 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, p := Compile(specOf(t, "responseOverride: ["+strings.Join(c.list, ", ")+"]"), "", "n/p", nil); p != nil {
				got = fmt.Sprintf("%s: %s", p.Field, p.What)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func many(text string, n int) (list []string) {
	for range n {
		list = append(list, text)
	}
	return list
}
