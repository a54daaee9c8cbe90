//go:build !linux

package listen

import (
	"net"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// listener is a listening socket.
type listener struct{ *net.TCPListener }

func listenerOf(ln *net.TCPListener) (*listener, error) { return &listener{ln}, nil }

func (l *listener) setDeadline(t time.Time) error { return l.SetDeadline(t) }

func (l *listener) close() { l.Close() }

// accepted is not used on this system.
type accepted struct{}

func newAccepted() *accepted { return nil }

// acceptOne waits for a connection and passes it on, never as Raw.
func (s *Socket) acceptOne(_ *accepted, handle func(*socket.Conn), _ func()) error {
	tcp, err := s.ln.AcceptTCP()
	if err != nil {
		return err
	}
	c, err := socket.FromTCP(tcp)
	if err == nil {
		handle(c)
	}
	return err
}

// Conn must not be called: there are no Raws on this system.
func (c Raw) Conn() *socket.Conn { panic("listen: accepted as Raw") }
