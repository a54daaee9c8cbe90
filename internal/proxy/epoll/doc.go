// Package epoll waits for events of many sockets on one goroutine, on Linux. It exists because a goroutine that waits for each costs its stack, and because
// the runtime's poller tells neither of a peer's end apart from its data, nor without somebody who reads.
//
// It knows of descriptors only and imports the standard library and x/sys.
package epoll
