package cli

import (
	"strings"
	"testing"
)

// TestFlagValues: what cannot be meant is refused at the flag, with the remedy.
func TestFlagValues(t *testing.T) {
	for args, want := range map[string]string{
		"run -f x --drain-timeout -5s":                     "it is negative; write 0s for none",
		"run -f x --shutdown-delay 5":                      "write a number and a unit",
		"run -f x --rate-limit-timeout -1ms":               "it is negative",
		"proxy --drain-timeout -1s":                        "it is negative",
		"run -f x --admin-address http://127.0.0.1:9901/x": "leave out http://, as in 127.0.0.1:9901",
		"status --admin-address https://[::1]:9901":        "leave out https://, as in [::1]:9901",
		"backends --admin-address 127.0.0.1":               "write a host and a port",
		"controller --health-address :99999":               `"99999" is not a port`,
		"proxy --health-address :http":                     `"http" is not a port`,
		"controller --delivery-address tcp://:1":           "leave out tcp://",
		"run -f x --bind http://127.0.0.1":                 "not an IP address",
		"run -f x --bind 127.0.0.1 --bind 0.0.0.0":         "leave out the latter",
		"run -f x --bind ::1 --bind ::1":                   "leave out the latter",
	} {
		if code, out := run(strings.Fields(args)...); code != exitUsage || !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %q in\n%s", args, code, want, out)
		}
	}
}
