//go:build !linux

package client

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// splice is never called on this system.
func (*Conn) splice(*splice.Pipe) error { return errors.ErrUnsupported }
