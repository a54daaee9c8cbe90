//go:build !linux

package tunnel

// suspends reports that HangUps can watch suspended tunnels.
const suspends = false

// HangUps has nothing to do on this system.
type HangUps struct{}

// Close does nothing.
func (*HangUps) Close() {}

func (*HangUps) await(*Tunnel) bool { return false }

// relay does not exist on this system.
type relay struct{}

func (*Tunnel) messages(*direction) (n int, ok bool) { return 0, true }

func (*Tunnel) forget(*direction) {}

func (*Tunnel) stopAwaiting() {}
