package http1

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// FuzzConnectAuthority: what is taken for the authority of a CONNECT is a host and a port, the same by HTTP/1.1 and HTTP/2, and is sent on as one target that means the same.
func FuzzConnectAuthority(f *testing.F) {
	for _, seed := range []string{"h:443", "h", "h:", ":443", "h:65535", "h:65536", "h:+1", "h:0443", "H.Example.com.:1", "[::1]:8", "[::1]", "::1:8", "[::1%25eth0]:8", "[::ffff:1.2.3.4]:80",
		"1.2.3.4:80", "a@h:443", "http://h:443", "h:443/", "h:443?a", "h:443#a", "h:443 HTTP/1.1\r\nX: y", "h:4\t3", "h%3a:443", "a,b:443", "*:443", "h:443:443", "\u00e9:443", "h\x00:443"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		var h, again RequestHead
		var adopted, parsed message.Request
		adopts := h.Adopt([]byte("CONNECT"), nil, []byte(authority), nil, &adopted, nil)
		text := "CONNECT " + authority + " HTTP/1.1\r\nHost: h\r\n\r\n"
		n, err := ParseRequest([]byte(text), &parsed, &again, nil)
		if adopts != nil {
			if err == nil && n == len(text) && string(parsed.Host) == authority {
				t.Fatalf("HTTP/1.1 takes %q, and HTTP/2 does not: %v", authority, adopts)
			}
			return
		}
		if err != nil || n != len(text) || string(parsed.Host) != authority || !bytes.Equal(parsed.MatchHost, adopted.MatchHost) {
			t.Fatalf("HTTP/2 takes %q, and HTTP/1.1 reads %q, %v", authority, parsed.Host, err)
		}
		i := strings.LastIndexByte(authority, ':')
		host, port := authority[:i], authority[i+1:]
		if p, err := strconv.ParseUint(port, 10, 16); err != nil || len(port) > 5 || strings.ContainsAny(port, "+-_") {
			t.Fatalf("%q has port %d, %v", authority, p, err)
		}
		if literal, is := strings.CutPrefix(host, "["); is {
			if a, err := netip.ParseAddr(strings.TrimSuffix(literal, "]")); err != nil || a.Zone() != "" {
				t.Fatalf("%q has host %q, %v", authority, host, err)
			}
		} else if strings.ContainsAny(host, ":/?#@[]\\ \t\r\n\x00,") {
			t.Fatalf("%q has host %q", authority, host)
		}
		sent := AppendRequestHead(nil, &parsed, NoBody, -1, Hop{})
		if want := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"; string(sent) != want {
			t.Fatalf("%q is sent on as %q", authority, sent)
		}
	})
}

// TestConnectResponse: a tunnel follows the success of a CONNECT, whatever its fields say of a body (RFC 9112 section 6.3); to anything else of it a body belongs.
func TestConnectResponse(t *testing.T) {
	for _, tc := range []struct {
		in      string
		framing Framing
		length  int64
		keep    bool
	}{
		{"200 OK\r\n", NoBody, -1, false},
		{"200 OK\r\nContent-Length: 5\r\n", NoBody, -1, false},
		{"200 OK\r\nTransfer-Encoding: chunked\r\n", NoBody, -1, false},
		{"299 OK\r\nConnection: keep-alive\r\n", NoBody, -1, false},
		{"300 Choices\r\nContent-Length: 5\r\n", Length, 5, true},
		{"407 No\r\nTransfer-Encoding: chunked\r\n", Chunked, -1, true},
		{"502 No\r\n", UntilClose, -1, false},
	} {
		var head ResponseHead
		var resp message.Response
		in := "HTTP/1.1 " + tc.in + "\r\n"
		n, err := ParseResponse([]byte(in+"tunnel"), []byte("CONNECT"), &resp, &head, nil)
		if err != nil || n != len(in) || head.Framing != tc.framing || head.ContentLength != tc.length || head.KeepAlive != tc.keep {
			t.Errorf("%q: %d, %v, framing %d, length %d, keep-alive %v", tc.in, n, err, head.Framing, head.ContentLength, head.KeepAlive)
		}
		if _, ok := resp.Header.Get("content-length"); ok {
			t.Errorf("%q: Content-Length is passed on", tc.in)
		}
	}
}
