//go:build !linux

package client

import (
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// l4Loops is always empty on this system: all connections are Conns, see L4InLoops.
type l4Loops struct{}

func (l *l4Loops) close() {}

func (l *l4Loops) empty() bool { return true }

func (l *l4Loops) sweep(int64) {}

func (l *l4Loops) cut(observe.Reason) {}

func (l *l4Loops) each(func(*l4Conn)) {}

func (l *l4Loops) endAwaitingHello(map[clientKey]int, int, int, int64) int { return 0 }

// l4Conn is a connection driven by a loop. There are none on this system.
type l4Conn struct {
	counted
	moments
}

func (c *l4Conn) end() bool { return false }

func (c *l4Conn) held() int { return 0 }

// ServeL4 must not be called, see L4InLoops.
func (s *Set) ServeL4(*snapshot.Socket, listen.Raw, *snapshot.Port) {
	panic("client: no loops on this system")
}
