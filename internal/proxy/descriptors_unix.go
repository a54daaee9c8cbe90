//go:build unix

package proxy

import "syscall"

// DefaultMaxConnections is half of the descriptors that the process may have.
func DefaultMaxConnections() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return defaultDescriptors / 2
	}
	return int(max(min(limit.Cur, mostDescriptors)/2, 1))
}
