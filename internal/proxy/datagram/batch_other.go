//go:build !linux

package datagram

import (
	"errors"
	"sync"
	"syscall"
)

// On other systems listen.OpenUDP fails, so none of this is used.

type local struct{}

type batch struct{ err error }

var batches = sync.Pool{New: func() any { return newBatch(false) }}

func newBatch(bool) *batch { return &batch{err: errors.ErrUnsupported} }

func (b *batch) receive(syscall.RawConn) (int, error) { return 0, b.err }

func (b *batch) take(uintptr) bool { return true }

func (b *batch) tookAll() bool { return true }

func (b *batch) size(int) int { return 0 }

func (b *batch) sizes(int, int) int64 { return 0 }

func (b *batch) key(int) (key, bool) { return key{}, false }

func (b *batch) send(syscall.RawConn, int, int) (int, int64, error) { return 0, 0, b.err }

func (b *batch) reply(syscall.RawConn, *key, bool) int64 { return 0 }
