//go:build !unix

package proxy

// DefaultMaxConnections is half of the descriptors that a process usually may have.
func DefaultMaxConnections() int { return defaultDescriptors / 2 }
