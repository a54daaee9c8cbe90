package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestOneRequest goes through all layers with net/http on both sides: without a body, and with one
// that is too long to come with its head.
func TestOneRequest(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Saw", r.Method+" "+r.URL.String()+" "+r.Host+" "+r.Header.Get("X-Forwarded-For"))
		w.Write(b)
		io.WriteString(w, "hello")
	}), nil)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, tc := range []struct{ method, body string }{{"GET", ""}, {"POST", strings.Repeat("x", 100_000)}} {
		req, err := http.NewRequest(tc.method, "http://"+g.addr()+"/a?b=c", strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || string(got) != tc.body+"hello" {
			t.Errorf("%s: %s, %d bytes, %v", tc.method, resp.Status, len(got), err)
		}
		if saw, want := resp.Header.Get("Saw"), tc.method+" /a?b=c "+g.addr()+" 127.0.0.1"; saw != want {
			t.Errorf("the backend saw %q, want %q", saw, want)
		}
	}
	for _, reason := range g.reasonsLogged(2) {
		if reason != "ok" {
			t.Errorf("logged %q, want ok", reason)
		}
	}
}
