//go:build !linux

package cli

import "time"

// cpuTime is not known here; the scavenger decides by allocations only.
func cpuTime() time.Duration { return 0 }

func releaseProgram() {}

func residentFiles() uint64 { return 0 }
