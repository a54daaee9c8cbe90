package head

import (
	"fmt"
	"testing"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// FuzzHead gives any fields to the checks of a request. What passes is one message of HTTP/1.1, with the
// same fields, so a backend cannot see anything else than what was routed.
func FuzzHead(f *testing.F) {
	f.Add("GET", "http", "a.test", "/a/b?c=d", "", "x-a", "value", "cookie", "a=b", false)
	f.Add("POST", "https", "a.test:8443", "/%2e%2e/", "", "content-length", "3", "te", "trailers", true)
	f.Add("OPTIONS", "http", "[::1]", "*", "", "host", "a", "expect", "100-continue", false)
	f.Add("GET", "http", "a.test", "/\r\nX: y", "", "a\nb", "c\r\n\r\nGET / HTTP/1.1", "transfer-encoding", "chunked", false)
	f.Add("CONNECT", "https", "a.test", "/chat?a=b", "websocket", "sec-websocket-version", "13", "sec-websocket-protocol", "chat, superchat", false)
	f.Add("CONNECT", "http", "a.test", "/", "websocket\r\nX: y", "sec-websocket-key", "a\r\nContent-Length: 3", "connection", "upgrade", false)
	f.Add("GET", "http", "a.test", "/", "websocket", "upgrade", "websocket", "content-length", "0", false)
	f.Add("CONNECT", "http", "a.test", "/", "websocket", "content-length", "3", "host", "b.test", false)
	f.Add("POST", "http", "a.test", "/", "", "content.length", "3", "transfer~encoding", "chunked", false)
	f.Fuzz(func(t *testing.T, method, scheme, authority, path, protocol, name1, value1, name2, value2 string, ended bool) {
		var x Section
		var h Head
		x.Reset(RequestHeader)
		fields := [][2]string{{":method", method}, {":scheme", scheme}, {":authority", authority}, {":path", path}, {":protocol", protocol}, {name1, value1}, {name2, value2}}
		for _, p := range fields {
			if p != [2]string{":protocol", ""} {
				x.Add(p[0], p[1], &h, 16<<10, 128)
			}
		}
		if x.Large || x.Settle(&h, ended, true) != nil {
			return
		}
		if connect := string(h.Method) == "CONNECT"; connect != (len(h.Protocol) > 0) {
			if connect { // by its authority alone
				return
			}
			t.Fatalf("%s with :protocol %q", h.Method, h.Protocol)
		}
		var hop string
		if len(h.Protocol) > 0 { // which becomes this
			h.Method = []byte("GET")
			hop = fmt.Sprintf("Connection: Upgrade\r\nUpgrade: %s\r\n", h.Protocol)
			if h.ContentLength > 0 {
				t.Errorf("a tunnel with Content-Length %d", h.ContentLength)
			}
		}
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", h.Method, h.Path, h.Authority)
		for i := range h.Fields.Len() {
			fl := h.Fields.At(i)
			if n := string(cginame.Append(nil, fl.Name)); n == "content-length" || n == "transfer-encoding" {
				t.Errorf("%s was accepted", fl.Name)
			}
			if line := string(fl.Name) + ": " + string(fl.Value) + "\r\n"; line != string(fl.Line) {
				t.Errorf("line %q of %q and %q", fl.Line, fl.Name, fl.Value)
			}
			text += string(fl.Line)
		}
		text += hop + "\r\n"
		var req message.Request
		var rh http1.RequestHead
		n, err := http1.ParseRequest([]byte(text+"GET / HTTP/1.1\r\n"), &req, &rh, nil)
		if err != nil {
			return // of host and path it judges more
		}
		if n != len(text) || req.Header.Len() != h.Fields.Len() || rh.Framing != http1.NoBody || string(req.Method) != string(h.Method) {
			t.Errorf("%q is read as %d bytes, %d fields, framing %d, method %q", text, n, req.Header.Len(), rh.Framing, req.Method)
		}
		if len(h.Protocol) > 0 && rh.Upgrade != nil && string(rh.Upgrade) != string(h.Protocol) {
			t.Errorf("%q asks for %q, not %q", text, rh.Upgrade, h.Protocol)
		}
	})
}

// FuzzResponse gives any fields to the checks of a response. What passes is one message of HTTP/1.1 with the same
// status and fields, so a client cannot see anything else than what was judged.
func FuzzResponse(f *testing.F) {
	f.Add("200", "x-a", "value", "set-cookie", "a=b", "content-length", "3", false, false)
	f.Add("204", "date", "x", "content-length", "0", "proxy-authenticate", "a", true, false)
	f.Add("200", "transfer_encoding", "chunked", "content.length", "3", "x.real.ip", "a", false, false)
	f.Add("103", "a\nb", "c\r\n\r\nHTTP/1.1 200 OK", "link", "a", "transfer-encoding", "chunked", false, true)
	f.Fuzz(func(t *testing.T, status, name1, value1, name2, value2, name3, value3 string, ended, toHead bool) {
		var x Section
		x.Reset(ResponseHeader)
		for _, p := range [][2]string{{":status", status}, {name1, value1}, {name2, value2}, {name3, value3}} {
			x.Add(p[0], p[1], nil, 16<<10, 128)
		}
		if x.Large {
			return
		}
		length, content, err := x.SettleResponse(ended, toHead)
		if err != nil {
			return
		}
		text := fmt.Sprintf("HTTP/1.1 %03d \r\n", x.Status())
		for i := range x.Fields.Len() {
			text += string(x.Fields.At(i).Line)
		}
		if length >= 0 {
			text += fmt.Sprintf("Content-Length: %d\r\n", length)
		}
		text += "\r\n"
		method := "GET"
		if toHead {
			method = "HEAD"
		}
		var resp message.Response
		var rh http1.ResponseHead
		n, err := http1.ParseResponse([]byte(text+"HTTP/1.1 200 OK\r\n\r\n"), []byte(method), &resp, &rh, nil)
		if err != nil || n != len(text) || resp.Status != x.Status() || resp.Header.Len() != x.Fields.Len() {
			t.Fatalf("%q is read as %d bytes, status %d, %d fields, %v", text, n, resp.Status, resp.Header.Len(), err)
		}
		if rh.Framing == http1.NoBody && content != 0 || rh.Framing == http1.Length && !ended && content != rh.ContentLength {
			t.Errorf("%q: framing %d of %d bytes, content %d", text, rh.Framing, rh.ContentLength, content)
		}
	})
}
