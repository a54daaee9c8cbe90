//go:build !linux

package upstream

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// ErrNoSplice says that nothing was moved and nothing ever will be: read instead.
var ErrNoSplice = errors.New("upstream: the system does not splice")

// splicing has no state on this system.
type splicing struct{}

// Splices tells whether what the backend sends can be moved into a pipe.
func (c *Conn) Splices() bool { return false }

// Splice is never called.
func (c *Conn) Splice(*splice.Pipe, int64) (int, error) { return 0, ErrNoSplice }

// SpliceMore is never called.
func (c *Conn) SpliceMore(*splice.Pipe, int64) int { return 0 }
