//go:build !unix

package proxy

// descriptorLimit returns how many descriptors a process usually may have.
func descriptorLimit() int { return defaultDescriptors }
