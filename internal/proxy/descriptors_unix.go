//go:build unix

package proxy

import "syscall"

// descriptorLimit returns how many descriptors the process may have.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return defaultDescriptors
	}
	return int(min(limit.Cur, mostDescriptors))
}
