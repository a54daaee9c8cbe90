package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var framingNames = [...]string{"nobody", "length", "chunked", "untilclose"}

// responseMeaning is everything about a response but how it was written.
func responseMeaning(resp *message.Response, h *ResponseHead) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %q %s %d", resp.Status, resp.Reason, framingNames[h.Framing], h.ContentLength)
	if h.Upgrade != nil {
		fmt.Fprintf(&b, " upgrade=%s", h.Upgrade)
	}
	describe(&b, &resp.Header)
	return b.String()
}

var acceptedResponses = []struct{ method, in, want string }{
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", `200 "OK" length 5`},
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", `200 "OK" length 0`},
	{"GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\nA: b\r\n\r\n", `200 "OK" chunked -1 [A:b]`},
	{"GET", "HTTP/1.1 200 \r\n\r\n", `200 "" untilclose -1 close`},
	{"GET", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n", `200 "" length 1`},
	{"GET", "HTTP/1.1 404 N\xc3\xb6t  found\t!\r\nContent-Length: 1\r\n\r\n", `404 "Nöt  found\t!" length 1`},
	{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", `200 "OK" length 1 close`},
	{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n", `200 "OK" length 1`},
	{"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", `200 "OK" untilclose -1 close`},
	{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close, X\r\nx: y\r\nZ: 1\r\n\r\n", `200 "OK" length 1 [Z:1] close`},
	{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", `200 "OK" nobody 5`},
	{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", `200 "OK" nobody -1`},
	{"HEAD", "HTTP/1.1 200 OK\r\n\r\n", `200 "OK" nobody -1`},
	{"head", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", `200 "OK" length 5`},
	{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", `304 "Not Modified" nobody 5 [ETag:x]`},
	{"GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", `304 "Not Modified" nobody -1`},
	{"GET", "HTTP/1.1 204 No Content\r\n\r\n", `204 "No Content" nobody -1`},
	{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", `204 "No Content" nobody -1`},
	{"GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", `205 "Reset Content" length 0`},
	{"GET", "HTTP/1.1 100 Continue\r\n\r\n", `100 "Continue" nobody -1`},
	{"GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", `103 "Early Hints" nobody -1 [Link:</a>]`},
	{"GET", "HTTP/1.1 426 X\r\nConnection: upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		`426 "X" length 0 upgrade=TLS/1.0, HTTP/1.1`},
	{"GET", "HTTP/1.1 426 X\r\nUpgrade: a b\r\nContent-Length: 0\r\n\r\n", `426 "X" length 0`},
	{"GET", "HTTP/1.1 426 X\r\nUpgrade: a/\r\nContent-Length: 0\r\n\r\n", `426 "X" length 0`},
	{"GET", "HTTP/1.1 426 X\r\nUpgrade: a\r\nUpgrade: b\r\nContent-Length: 0\r\n\r\n", `426 "X" length 0`},
	{"GET", "HTTP/1.1 200 X\r\nConnection: upgrade\r\nUpgrade: a\r\nContent-Length: 0\r\n\r\n", `200 "X" length 0`},
	{"GET", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
		`101 "Switching" nobody -1 upgrade=websocket [Sec-WebSocket-Accept:x]`},
	{"GET", "HTTP/1.1 999 x\r\nContent-Length: 0\r\n\r\n", `999 "x" length 0`},
	{"GET", "HTTP/1.1 407 x\r\nContent-Length: 0\r\nProxy-Authenticate: Basic\r\nHost: kept\r\nExpect: kept\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\n\r\n",
		`407 "x" length 0 [Host:kept] [Expect:kept]`},
}

func TestAcceptedResponses(t *testing.T) {
	var resp message.Response
	var h ResponseHead
	for _, c := range acceptedResponses {
		in := c.in + "tail"
		n, err := ParseResponse([]byte(in), []byte(c.method), &resp, &h, nil)
		if err != nil || n != len(c.in) {
			t.Errorf("%q: n %d of %d, error %v", c.in, n, len(c.in), err)
			continue
		}
		got := responseMeaning(&resp, &h)
		if !h.KeepAlive {
			got += " close"
		}
		if got != c.want {
			t.Errorf("%s %q:\n got %s\nwant %s", c.method, c.in, got, c.want)
		}
		for i := range len(c.in) {
			if _, err := ParseResponse([]byte(c.in[:i]), []byte(c.method), &resp, &h, nil); err != ErrIncomplete {
				t.Fatalf("%q: error %v, want incomplete", c.in[:i], err)
			}
		}
	}
}

var refusedResponses = []struct{ in, reason string }{
	{"\r\nHTTP/1.1 200 OK\r\n\r\n", "version"},
	{"ICY 200 OK\r\n\r\n", "version"},
	{"HTTP/2.0 200 OK\r\n\r\n", "version"},
	{"HTTP/1.2 200 OK\r\n\r\n", "version"},
	{"http/1.1 200 OK\r\n\r\n", "version"},
	{"HTTP/1.1  200 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1\t200 OK\r\n\r\n", "status_line"},
	{"HTTP/1.10 200 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 20 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 099 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 +20 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 2000 OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 200OK\r\n\r\n", "status_line"},
	{"HTTP/1.1 200\tOK\r\n\r\n", "status_line"},
	{"HTTP/1.1 200 OK\nA: b\r\n\r\n", "status_line"},
	{"HTTP/1.1 200\n\r\n", "status_line"},
	{"HTTP/1.1 200 O\rK\r\n\r\n", "status_line"},
	{"HTTP/1.1 200 O\x00K\r\n\r\n", "status_line"},
	{"HTTP/1.1 200 OK\r\n A: b\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", "field_line"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "framing"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "framing"},
	{"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "framing"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "content_length"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", "content_length"},
	{"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", "content_length"},
	{"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n", "content_length"},
	{"HTTP/1.1 100 X\r\nContent-Length: 5\r\n\r\n", "content_length"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding"},
	{"HTTP/1.1 101 X\r\n\r\n", "upgrade"},
	{"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n", "upgrade"},
	{"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "upgrade"},
	{"HTTP/1.1 200 OK\r\nConnection: content-length\r\n\r\n", "connection"},
	{"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 129) + "\r\n", "too_many_fields"},
	{"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 32<<10), "head_too_large"},
}

func TestRefusedResponses(t *testing.T) {
	var resp message.Response
	var h ResponseHead
	for _, c := range refusedResponses {
		_, want := ParseResponse([]byte(c.in), []byte("GET"), &resp, &h, nil)
		e, ok := want.(*Error)
		if !ok || e.Status != 502 || e.Reason != c.reason {
			t.Errorf("%.80q: error %+v, want %s", c.in, want, c.reason)
			continue
		}
		refused := false
		for i := 0; i < len(c.in); i += 1 + len(c.in)/1024 {
			_, err := ParseResponse([]byte(c.in[:i]), []byte("GET"), &resp, &h, nil)
			if refused = refused || err == want; err != want && (refused || err != ErrIncomplete) {
				t.Fatalf("%.80q: error %v after %d bytes, want %v", c.in, err, i, want)
			}
		}
	}
}
