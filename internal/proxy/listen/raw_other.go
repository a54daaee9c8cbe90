//go:build !linux

package listen

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// rawAccepter is nothing: connections are not accepted as Raw here.
type rawAccepter struct{}

func (s *Socket) openRaw() bool { return false }

// accepted is nothing here.
type accepted struct{}

func newAccepted() *accepted { return nil }

func (s *Socket) acceptRaw(*accepted) (Raw, error) { panic("listen: accepted as Raw") }

func (s *Socket) rawDeadline(time.Time) error { return nil }

func (s *Socket) closeRaw() {}

// Conn must not be called: there are none.
func (c Raw) Conn() *socket.Conn { panic("listen: accepted as Raw") }
