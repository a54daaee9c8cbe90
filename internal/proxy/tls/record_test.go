package tls

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// counting counts the writes, each of which is a system call on a socket.
type counting struct {
	net.Conn
	writes, bytes atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// TestRecordsAreFull: a response that fits one record is one write, a longer one a write for each 16 KiB, from
// the first on and after idling too.
func TestRecordsAreFull(t *testing.T) {
	var none *Listener
	cfg := serve(none.Update("default/gw/l", []*Certificate{parsed(t, resource(t, "c", testkit.NewKey(t), "a.example"))}, secrets(1), nil, nil, HTTP))
	for version, name := range map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"} {
		a, b := wires(t)
		c := &counting{Conn: b}
		server, client := tls.Server(c, cfg), tls.Client(a, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		done := make(chan error, 1)
		go func() { done <- client.Handshake() }()
		if err := server.Handshake(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, client)
		for _, response := range []struct{ size, writes int64 }{{1, 1}, {1 << 10, 1}, {16 << 10, 1}, {16<<10 + 1, 2}, {64 << 10, 4}, {300, 1}} {
			writes, bytes := c.writes.Load(), c.bytes.Load()
			if _, err := server.Write(make([]byte, response.size)); err != nil {
				t.Fatal(err)
			}
			writes, bytes = c.writes.Load()-writes, c.bytes.Load()-bytes
			if most := response.size + response.writes*64; writes != response.writes || bytes > most {
				t.Errorf("TLS %s: %d bytes are %d writes of %d bytes, want %d writes of at most %d", name, response.size, writes, bytes, response.writes, most)
			}
		}
	}
}
