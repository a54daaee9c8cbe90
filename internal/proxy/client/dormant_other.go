//go:build !linux

package client

import "sync/atomic"

// dormants is always empty on this system, where connections are not parked.
type dormants struct {
	notBefore atomic.Int64
	released  atomic.Uint64
}

func (c *Conn) goDormant() bool { panic("nothing is parked here") }

func (*dormants) sweep(*Set, sweepTimes) {}

func (*dormants) cut(*Set) {}

func (*dormants) close() {}

func (*dormants) endSome(*Set, int, func(*dormant) bool) int { return 0 }

func (*dormants) endLarge(*Set, int, func(*dormant) bool) int { return 0 }

func (*dormant) endsNow(int64) bool { return true }

func (*dormants) emptyWith(others func() bool) bool { return others() }
