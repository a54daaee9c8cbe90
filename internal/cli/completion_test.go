package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompletion asks as the scripts of shells do: the last argument is what is typed of a word, and the last line says what else the shell may offer.
func TestCompletion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/backends" {
			w.Write([]byte(`[{"name":"Service/shop/cart:80"},{"name":"Service/press/blog:80"}]`))
			return
		}
		w.Write([]byte(statusOf))
	}))
	defer server.Close()
	address := "--admin-address=" + strings.TrimPrefix(server.URL, "http://")
	base := "-f=" + filepath.Join("testdata", "mistakes", "base.yaml")
	config := kubeconfig(t, clusterOf(t))
	const none, files, extensions = ":4", ":0", ":8" // cobra.ShellCompDirectiveNoFileComp, …Default, …FilterFileExt
	for _, c := range []struct {
		args, typed string
		want        []string // all of them, before the directive
		directive   string
	}{
		{"check -o", "", []string{"table", "text", "json", "yaml", "github", "sarif"}, none},
		{"check -f", "", manifestFiles, extensions},
		{"check", "", manifestFiles, extensions},
		{"migrate", "", manifestFiles, extensions},
		{"check --class", "", nil, none},
		{"check " + base + " --class", "", []string{"moongate"}, none},
		{"explain " + base, "G", []string{"GET"}, none},
		{"explain " + base + " GET", "", []string{"http://www.example.com:8080/"}, none},
		{"explain " + base + " GET http://www.example.com:8080/", "", nil, none},
		{"explain -H", "", nil, none},
		{"proxy --log-level", "", []string{"debug", "info", "warn", "error"}, none},
		{"run --access-log", "", []string{"json", "off"}, files},
		{"run --rate-limit-algorithm", "", []string{"FixedWindow", "GCRA"}, none},
		{"run --request-ids", "", []string{"generate", "preserve"}, none},
		{"run --secret-file", "", nil, files},
		{"run", "", manifestFiles, extensions},
		{"version", "", nil, none},
		{"migrate -o", "", nil, files},
		{"status", "http", []string{"httpfilter", "httproute"}, none},
		{"status " + address, "httproute/", []string{"httproute/blog", "httproute/cart"}, none},
		{"status " + address, "HTTPRoute/c", []string{"HTTPRoute/cart"}, none},
		{"status " + address + " -n press", "httproute/", []string{"httproute/blog"}, none},
		{"status " + address + " httproutes cart", "", []string{"blog"}, none},
		{"status " + address + " -n", "", []string{"infra", "press", "shop"}, none},
		{"status --admin-address=127.0.0.1:1", "httproute/", nil, none},
		{"status --kube --kubeconfig=" + config, "gateway/", []string{"gateway/gw"}, none},
		{"status --kube --kubeconfig=" + config + " --context", "", []string{"away", "good", "stranger"}, none},
		{"backends " + address, "", []string{"Service/press/blog:80", "Service/shop/cart:80"}, none},
		{"backends " + address, "Service/s", []string{"Service/shop/cart:80"}, none},
		{"backends " + address + " Service/shop/cart:80", "", nil, none},
		{"backends --admin-address=127.0.0.1:1", "", nil, none},
		{"diff --from", "", manifestFiles, extensions},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(append(append([]string{"__complete"}, strings.Fields(c.args)...), c.typed), &stdout, &stderr); code != exitOK {
			t.Errorf("%s: exit code %d: %s", c.args, code, &stderr)
			continue
		}
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		got, directive := lines[:len(lines)-1], lines[len(lines)-1]
		if !slices.Equal(got, c.want) && len(got)+len(c.want) > 0 || directive != c.directive {
			t.Errorf("%s %q: %q %s, want %q %s", c.args, c.typed, got, directive, c.want, c.directive)
		}
	}
}

// TestCompletionScripts checks that there is a script for each shell that docs name.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var stdout, stderr bytes.Buffer
		if code := Main([]string{"completion", shell}, &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), "__complete") {
			t.Errorf("%s: exit code %d, %s", shell, code, &stderr)
		}
	}
}
