// Package datagram forwards UDP: from clients of a listener to the endpoints of its layer-4 route, and what those answer back. It exists so that the
// rest of the proxy, which is about connections, need not know of clients that have none.
//
// What a client sends from one address and port to one of ours is a session. Its first datagram chooses a backend by weight and an endpoint of it,
// and the session has a connected socket to that, so that the kernel sorts the answers and tells of an endpoint that is not there. A session ends
// when nothing has passed for a while, or when its endpoint or route goes; the client's next datagram begins another.
//
// To a client nothing is sent but what an endpoint has sent for it, once each: a forged address gains nobody more than the endpoint gives.
//
// A datagram is forwarded whole or not at all, and none is kept: what cannot be sent at once is lost, as on any network. It imports no package that
// knows of connections.
package datagram
