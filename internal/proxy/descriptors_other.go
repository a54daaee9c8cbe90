//go:build !unix

package proxy

// descriptorLimit is how many descriptors a process usually may have.
func descriptorLimit() int { return defaultDescriptors }
