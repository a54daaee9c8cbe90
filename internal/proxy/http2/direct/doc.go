// Package direct writes to a socket what it takes at once, and never waits for more room. It exists because a stream
// that writes for others has a deadline of its own, which net.Conn cannot keep while it waits.
//
// It imports the standard library and x/sys, nothing of the proxy.
package direct
