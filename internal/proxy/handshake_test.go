package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
)

// TestFailedHandshakes has clients fail to shake hands: they are told why where they can be, the log has name, port and cause, and
// none is a request in the histogram.
func TestFailedHandshakes(t *testing.T) {
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	g := startGatewayWith(t, Options{Metrics: metrics})
	g.apply([]*config.Resource{certificate(t, "known", newECDSA(t), "known.test"), g.httpsListener("https", "known.test", "known")})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		_, _, err := g.dialTLS("Other.test", func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version })
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("an unknown name: %v", err)
		}
	}
	if _, _, err := g.dialTLS("known.test", nil); err != nil {
		t.Error(err)
	}
	long := "POST /a HTTP/1.1\r\nHost: known.test\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("a", 100000)
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: known.test\r\n\r\n", "A / HTTP/1.0\r\n\r\n", "PROPFIND / HTTP/1.1\r\n\r\n", long} {
		got := g.roundTrip(request)
		head, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 400 ") || !strings.Contains(head, fmt.Sprintf("Content-Length: %d", len(body))) || strings.Count(body, "\n") != 1 {
			t.Errorf("got %q", got)
		}
	}
	c := g.dial()
	io.WriteString(c, "SSH-2.0-x\r\n") // neither
	if b, _ := io.ReadAll(c); strings.Contains(string(b), "HTTP") {
		t.Errorf("got %q", b)
	}
	count := map[string]int{}
	for _, w := range g.reasonsLogged(7) {
		count[w]++
	}
	if count["http_on_tls_port"] != 4 || count["tls_handshake_failed"] != 3 {
		t.Errorf("%v", count)
	}
	for _, want := range []string{`"authority":"Other.test"`, fmt.Sprintf(`"port":%d,"cause":"no listener for this server name"`, g.port), "first record does not look like a TLS handshake"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, g.log)
		}
	}
	families, err := metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var requests float64
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "moongate_request_duration_seconds":
				if n := m.GetHistogram().GetSampleCount(); n != 0 {
					t.Errorf("%d durations", n)
				}
			case "moongate_requests_total":
				requests += m.GetCounter().GetValue()
			}
		}
	}
	if requests != 7 {
		t.Errorf("%v counted", requests)
	}
}
