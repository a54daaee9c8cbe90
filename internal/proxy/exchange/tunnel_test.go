package exchange

import (
	"bytes"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// TestCheckSwitch: nothing but the 101 that was asked for begins a tunnel. The pair of keys is that of RFC 6455 section 1.3.
func TestCheckSwitch(t *testing.T) {
	const key, accept = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	for name, tc := range map[string]struct {
		asked, key, named, accept string
		want                      error
	}{
		"asked for":                  {"websocket", key, "websocket", accept, nil},
		"in another case":            {"websocket", key, "WebSocket", accept, nil},
		"not asked for":              {"", key, "websocket", accept, errSwitch},
		"another protocol":           {"websocket", key, "other", accept, errSwitch},
		"another key's":              {"websocket", key, "websocket", "HSmrc0sMlYUkAGmm5OPpG2HaGWk=", errSwitch},
		"without the key":            {"websocket", "", "websocket", "", errSwitch},
		"without proof":              {"websocket", key, "websocket", "", errSwitch},
		"no WebSocket needs a proof": {"other", "", "other", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			if tc.asked != "" {
				x.Upgrade = []byte(tc.asked)
			}
			if tc.key != "" {
				x.Header.Add([]byte("Sec-WebSocket-Key"), []byte(tc.key))
			}
			if tc.accept != "" {
				x.resp.Header.Add([]byte("Sec-WebSocket-Accept"), []byte(tc.accept))
			}
			a := &x.attempt
			a.http1 = &http1Transport{head: http1.ResponseHead{Upgrade: []byte(tc.named)}}
			a.transport = a.http1
			if err := x.checkSwitch(a); err != tc.want {
				t.Errorf("%v, want %v", err, tc.want)
			}
			a.transport = &a.http2
			if err := x.checkSwitch(a); err != errSwitch {
				t.Errorf("by HTTP/2: %v", err)
			}
		})
	}
}

// TestEarlyGivenUp: what has come behind a 101 is read first, and then its memory is not held any more.
func TestEarlyGivenUp(t *testing.T) {
	const size = buffer.Size + 1
	d := &connDuplex{early: bytes.Repeat([]byte("x"), size)}
	var b buffer.Lender
	for _, want := range []int{buffer.Size, 1} {
		if d.early == nil {
			t.Fatal("given up before it is read")
		}
		if n, err := d.ReadInto(&b); n != want || err != nil {
			t.Fatalf("%d bytes, %v, want %d", n, err, want)
		}
		b.Give()
	}
	if d.early != nil {
		t.Errorf("%d bytes of memory are held", size)
	}
}

// TestPanicResetsBackend: where a panic has passed through a tunnel, its backend must not take what it was sent for complete; where the tunnel has ended, that says
// how.
func TestPanicResetsBackend(t *testing.T) {
	for _, ended := range []bool{false, true} {
		resets := 0
		j := &joined{tunnel: &tunnel.Tunnel{}, reset: func() { resets++ }, ended: ended, path: &tunnelPath{tunnels: &tunnels{}}}
		x := New()
		x.joined = j
		x.leaveJoined()
		if want := map[bool]int{false: 1, true: 0}[ended]; resets != want {
			t.Errorf("ended %v: %d resets, want %d", ended, resets, want)
		}
	}
}
