//go:build !linux

package client

import (
	"errors"
	"syscall"
)

// lot is not there on this system: idle connections keep their goroutines.
type lot struct{}

func openLot(func(*Conn)) (*lot, error) { return nil, errors.ErrUnsupported }

func (*lot) close() {}

func (*lot) admit(*Conn) error { return errors.ErrUnsupported }

func (*lot) forget(*Conn) {}

func (*lot) watch(syscall.RawConn, bool) error { return errors.ErrUnsupported }

func (*lot) hear(*Conn) {}

func (*lot) forgetHeard(*Conn) {}
