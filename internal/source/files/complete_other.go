//go:build !linux

package files

// complete is known on Linux only.
func complete(string) bool { return false }

// openForWriting is known on Linux only.
func openForWriting(string) bool { return false }
