package head

import (
	"fmt"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// FuzzHead gives any fields to the checks of a request. What passes is one message of HTTP/1.1, with the
// same fields, so a backend cannot see anything else than what was routed.
func FuzzHead(f *testing.F) {
	f.Add("GET", "http", "a.test", "/a/b?c=d", "x-a", "value", "cookie", "a=b", false)
	f.Add("POST", "https", "a.test:8443", "/%2e%2e/", "content-length", "3", "te", "trailers", true)
	f.Add("OPTIONS", "http", "[::1]", "*", "host", "a", "expect", "100-continue", false)
	f.Add("GET", "http", "a.test", "/\r\nX: y", "a\nb", "c\r\n\r\nGET / HTTP/1.1", "transfer-encoding", "chunked", false)
	f.Fuzz(func(t *testing.T, method, scheme, authority, path, name1, value1, name2, value2 string, ended bool) {
		var x Section
		var h Head
		x.Reset(RequestHeader)
		for _, p := range [][2]string{{":method", method}, {":scheme", scheme}, {":authority", authority}, {":path", path}, {name1, value1}, {name2, value2}} {
			x.Add(p[0], p[1], &h, 16<<10, 128)
		}
		if x.Large || x.Settle(&h, ended, true) != nil || string(h.Method) == "CONNECT" {
			return
		}
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", h.Method, h.Path, h.Authority)
		for i := range h.Fields.Len() {
			fl := h.Fields.At(i)
			if line := string(fl.Name) + ": " + string(fl.Value) + "\r\n"; line != string(fl.Line) {
				t.Errorf("line %q of %q and %q", fl.Line, fl.Name, fl.Value)
			}
			text += string(fl.Line)
		}
		text += "\r\n"
		var req message.Request
		var rh http1.RequestHead
		n, err := http1.ParseRequest([]byte(text+"GET / HTTP/1.1\r\n"), &req, &rh, nil)
		if err != nil {
			return // of host and path it judges more
		}
		if n != len(text) || req.Header.Len() != h.Fields.Len() || rh.Framing != http1.NoBody || string(req.Method) != string(h.Method) {
			t.Errorf("%q is read as %d bytes, %d fields, framing %d, method %q", text, n, req.Header.Len(), rh.Framing, req.Method)
		}
	})
}
