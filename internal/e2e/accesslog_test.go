package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestAccessLogPage runs the gateway with the flags that docs/access-log.md shows, and checks the lines that the page promises.
func TestAccessLogPage(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`--access-log-(\S+) ('[^']*'|\S+)`)
	blocks := slices.DeleteFunc(fenced(t, "docs/access-log.md", "sh"), func(b block) bool { return !flag.MatchString(b.content) })
	wants := []*regexp.Regexp{
		regexp.MustCompile(`^\{"start_time":.*"attempts":\d,"request_header.referer":"http://r.example/","response_header.content-type":"text/plain; charset=utf-8"\}$`),
		regexp.MustCompile(`^\S+Z 127.0.0.1 200 \d+\.\d{3} "GET /callback\?code=5f2c&state=1"$`),
		regexp.MustCompile(`"path":"/callback\?code=\*&state=1"`),
	}
	if len(blocks) != len(wants) {
		t.Fatalf("%d blocks have flags, want %d", len(blocks), len(wants))
	}
	for i, block := range blocks {
		port := freePort(t)
		out := &testkit.Log{}
		start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "b", nil)) +
			route("r", "  rules:\n  - backendRefs: [{name: b, port: 80}]")}, func(o *cli.RunOptions) {
			o.AccessLog, o.Stdout = "stdout", out
			for _, m := range flag.FindAllStringSubmatch(block.use(), -1) {
				switch value := strings.Trim(m[2], "'"); m[1] {
				case "members":
					o.LogLines.Members = strings.Split(value, ",")
				case "format":
					o.LogLines.Format = value
				case "redact":
					o.LogLines.Redact = strings.Split(value, ",")
				default:
					t.Fatalf("the flag %s is not known", m[0])
				}
			}
		})
		ask{url: local(port, "/callback?code=5f2c&state=1"), host: "example.com", header: map[string]string{"Referer": "http://r.example/"}}.do(t)
		testkit.Eventually(t, "a line in the access log", func() bool { return strings.HasSuffix(out.String(), "\n") })
		line := strings.TrimSpace(out.String())
		if !wants[i].MatchString(line) || strings.HasPrefix(line, "{") && !json.Valid([]byte(line)) {
			t.Errorf("%s\n%s\nwant %s", block, line, wants[i])
		}
	}
}
