//go:build !linux

package listen

import (
	"net"
	"time"
)

// rawAccepter is nothing: connections are not accepted as Raw here.
type rawAccepter struct{}

func (s *Socket) openRaw() bool { return false }

func (s *Socket) acceptRaw() (Raw, error) { panic("listen: accepted as Raw") }

func (s *Socket) rawDeadline(time.Time) error { return nil }

func (s *Socket) closeRaw() {}

// TCP must not be called: there are none.
func (c Raw) TCP() (*net.TCPConn, error) { panic("listen: accepted as Raw") }
