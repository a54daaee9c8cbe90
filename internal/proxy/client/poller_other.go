//go:build !linux

package client

import (
	"errors"
	"syscall"
)

// poller does not exist on this system: idle connections keep their goroutines.
type poller struct{}

func openPoller(func(*Conn)) (*poller, error) { return nil, errors.ErrUnsupported }

func (*poller) close() {}

func (*poller) admit(*Conn) error { return errors.ErrUnsupported }

func (*poller) forget(*Conn) {}

func (*poller) watch(syscall.RawConn, bool) error { return errors.ErrUnsupported }

func (*poller) watchHangUp(*Conn) {}

func (*poller) unwatchHangUp(*Conn) {}
