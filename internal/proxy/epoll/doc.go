// Package epoll waits for events of many sockets on one goroutine, on Linux. It exists because a waiting goroutine for
// each socket costs its stack, and because the runtime's poller neither distinguishes the end of a peer's stream from
// its data, nor reports anything without a reader.
//
// It only knows descriptors, and imports the standard library and x/sys.
package epoll
