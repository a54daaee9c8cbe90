package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestOneRequest(t *testing.T) {
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Saw", r.Method+" "+r.URL.String()+" "+r.Host+" "+r.Header.Get("X-Forwarded-For"))
		w.Write(b)
		io.WriteString(w, "hello")
	}), nil)
	resp, err := http.Get("http://" + g.addr() + "/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	t.Log(resp, string(b))
	resp, err = http.Post("http://"+g.addr()+"/a?b=c", "text/plain", strings.NewReader(strings.Repeat("x", 100000)))
	if err != nil {
		t.Fatal(err)
	}
	b, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	t.Log(resp, len(b))
	http.DefaultClient.CloseIdleConnections()
	t.Log(g.reasonsLogged(2))
	t.Log(g.log.String())
}
