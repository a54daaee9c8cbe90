// Package datagram forwards UDP: from clients of a listener to the endpoints of its layer-4 route, and their answers
// back. It exists so that the rest of the proxy, which handles connections, need not know about UDP.
//
// What a client sends from one address and port to one of the gateway's is a session. Its first datagram chooses a
// backend by weight and an endpoint of it, and the session has a socket connected to that endpoint, so that the kernel
// assigns the answers and reports an unreachable endpoint. A session ends when nothing has passed for a while, or when
// its endpoint or route is removed; the client's next datagram begins another.
//
// A client is only sent what an endpoint has sent for it, once each: with a forged address an attacker gains no more
// amplification than the endpoint provides.
//
// A datagram is forwarded completely or not at all, and none is queued: what cannot be sent at once is lost, as on any
// network. The package imports none that knows connections.
package datagram
