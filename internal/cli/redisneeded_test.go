package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRedisNeeded: check and explain say of global rate limits that they need a Redis, unless --redis says that there is one, or GatewayParameters name it.
func TestRedisNeeded(t *testing.T) {
	base, limited := filepath.Join("testdata", "mistakes", "base.yaml"), filepath.Join("testdata", "mistakes", "195-btp-global-limit-no-redis.yaml")
	text, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "named.yaml")
	withParameters := strings.Replace(string(text), "gateway-controller\n", "gateway-controller\n  parametersRef: {group: moongate.dev, kind: GatewayParameters, namespace: default, name: p}\n", 1) + `
---
apiVersion: moongate.dev/v1alpha1
kind: GatewayParameters
metadata: {name: p, namespace: default}
spec: {classOnly: {rateLimit: {redis: {urlSecretRef: {name: redis, key: url}}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: redis, namespace: default}
stringData: {url: "redis.example:6379"}
`
	if err := os.WriteFile(named, []byte(withParameters), 0o644); err != nil {
		t.Fatal(err)
	}
	const question, warning, note, answer = "http://shop.example.com:8080/", "warning: ", "\nnote ", "what the backend answers, if its global rate limits have a Redis to count in\n"
	for _, c := range []struct {
		args string
		code int
		says []string // all of them, or the contrary where it is empty
	}{
		{"check " + base + " " + limited, exitOK, []string{warning, "spec.rateLimit.global: it counts in a Redis", "1 warning"}},
		{"check --strict " + base + " " + limited, exitProblems, []string{warning}},
		{"check --strict --redis 192.0.2.1:6379 " + base + " " + limited, exitOK, nil},
		{"check --strict " + named + " " + limited, exitOK, nil},
		{"check --redis redis.example " + base, exitUsage, []string{"--redis: it is neither host:port"}},
		{"explain --expect 200 -f " + base + " -f " + limited + " " + question, exitOK, []string{note, "without one every request of the rule is answered 500 policy_invalid", answer}},
		{"explain --redis 192.0.2.1:6379 -f " + base + " -f " + limited + " " + question, exitOK, nil},
		{"explain -f " + named + " -f " + limited + " " + question, exitOK, nil},
	} {
		var out bytes.Buffer
		if code := Main(strings.Fields(c.args), &out, &out); code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.args, code, c.code, &out)
		}
		for _, says := range c.says {
			if !strings.Contains(out.String(), says) {
				t.Errorf("%s: no %q in\n%s", c.args, says, &out)
			}
		}
		if len(c.says) == 0 && strings.Contains(out.String(), "a Redis") {
			t.Errorf("%s: it says something of Redis:\n%s", c.args, &out)
		}
	}
}
