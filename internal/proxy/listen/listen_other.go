//go:build !linux

package listen

import (
	"errors"
	"syscall"
)

func inheritOptions(_, _ string, _ syscall.RawConn) error { return nil }

func ignoreAttempts(*listener) error { return errors.ErrUnsupported }

func waiting(*listener) bool { return false }
