//go:build linux

package h2load

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	connections = 100
	streams     = 100 // of each connection
	// requests is a fixed number, so that a slow machine needs longer and does not do less.
	requests = 50_000
)

// TestReloads: each of many requests on many streams is answered 200, while everything that the answers
// depend on is rewritten ten times a second. A restart is no part of it: this client makes no new connection
// when it is told GOAWAY, as others do.
func TestReloads(t *testing.T) {
	tool, err := exec.LookPath("h2load")
	if err != nil {
		t.Fatal("h2load is missing: `make -C test h2load` installs it (Debian's package nghttp2-client)")
	}
	w := newWorld(t)
	for _, c := range []struct{ name, url string }{
		{"TLS", fmt.Sprintf("https://%s:%d/path?and=query", host, w.tls)},
		{"in the clear", fmt.Sprintf("http://%s:%d/path?and=query", host, w.plain)},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.applied()
			stop := w.rewrite()
			out, err := exec.CommandContext(t.Context(), tool, "-n", fmt.Sprint(requests), "-c", fmt.Sprint(connections),
				"-m", fmt.Sprint(streams), "--connect-to=127.0.0.1:"+c.url[strings.LastIndex(c.url, ":")+1:strings.Index(c.url, "/path")], c.url).CombinedOutput()
			version := stop()
			if err != nil {
				t.Fatalf("h2load: %v\n%s", err, out)
			}
			for _, want := range []string{
				fmt.Sprintf("requests: %d total, %[1]d started, %[1]d done, %[1]d succeeded, 0 failed, 0 errored, 0 timeout", requests),
				fmt.Sprintf("status codes: %d 2xx, 0 3xx, 0 4xx, 0 5xx", requests),
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("h2load does not say %q:\n%s", want, out)
				}
			}
			if version < 3 {
				t.Fatalf("only %d rewrites: the load was over too soon", version)
			}
			w.waitServed(version)
			if n := w.applied() - before; n < 3 {
				t.Errorf("%d configurations were put in force during %d rewrites", n, version)
			}
		})
	}
}

// waitServed waits until what was written last is what clients get: route and certificate.
func (w *world) waitServed(version int) {
	w.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{ServerName: host, InsecureSkipVerify: true},
	}}
	var last string
	for range 1000 {
		req, err := http.NewRequest("GET", fmt.Sprintf("https://127.0.0.1:%d/", w.tls), nil)
		if err != nil {
			w.t.Fatal(err)
		}
		req.Host = host
		res, err := client.Do(req)
		if err == nil {
			res.Body.Close()
			last = fmt.Sprintf("status %d, version %s, certificate %s", res.StatusCode,
				res.Header.Get("X-Version"), res.TLS.PeerCertificates[0].Subject.CommonName)
			if last == fmt.Sprintf("status 200, version %d, certificate %s", version, w.certificates[version%2].name) {
				return
			}
		} else {
			last = err.Error()
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Errorf("version %d is not served; the last answer: %s", version, last)
}
