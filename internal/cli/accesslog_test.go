package cli

import (
	"strings"
	"testing"
)

func TestAccessLogFlags(t *testing.T) {
	for want, f := range map[string]accessLogFlags{
		"":                                       {},
		"--access-log-format: a { is not closed": {Format: "{path"},
		`--access-log-members: "hat" is not a`:   {Members: []string{"hat"}},
		`--access-log-redact: "" is not the name`:  {Redact: []string{""}},
		"--access-log-one-in: -1 is out of bounds": {OneIn: -1},
	} {
		e, err := newEngine(engineOptions{EngineFlags: EngineFlags{AccessLog: "off", LogLines: f}})
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			e.discard()
		} else if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
}
