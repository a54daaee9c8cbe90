package client

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

// TestHeadByteByByte counts how many bytes are parsed of a head that comes byte by byte, as a client can have it with TLS records, up to where it is too long.
func TestHeadByteByByte(t *testing.T) {
	for name, start := range map[string]string{"name": "GET / HTTP/1.1\r\n", "value": "GET / HTTP/1.1\r\na:"} {
		t.Run(name, func(t *testing.T) {
			c := &Conn{set: &Set{engine: &exchange.Engine{}}}
			defer c.releaseAll()
			c.makeRoom()
			c.w = copy(c.in, start)
			c.headDeadline, c.fresh = 1, true
			work, err := 0, http1.ErrIncomplete
			for err == http1.ErrIncomplete {
				if c.fresh {
					work += c.w - c.r
				}
				if _, err = c.parseHead(); err != http1.ErrIncomplete {
					break
				}
				c.makeRoom()
				c.in[c.w] = 'a'
				c.arrived(1)
			}
			if n := c.w - c.r; n != 32<<10 {
				t.Errorf("refused after %d bytes: %v", n, err)
			} else if work > 6*n {
				t.Errorf("%d bytes are parsed of %d", work, n)
			}
		})
	}
}
