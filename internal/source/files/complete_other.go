//go:build !linux

package files

// complete is supported on Linux only.
func complete(string) bool { return false }

// openForWriting is supported on Linux only.
func openForWriting(string) bool { return false }
