// Package http2 implements HTTP/2 connections (RFC 9113) of clients and to backends: frames to streams and back, with
// flow control, priorities (RFC 9218) and extended CONNECT (RFC 8441). It exists so that everything that HTTP/2 adds to
// a request, and everything that a hostile peer can do with it, is handled in one place. A handler of requests gets a
// Stream with a Head, a body to read and a response to write; a request to a backend is a ClientStream.
//
// It imports proxy/message, the packages below it, the standard library and hpack's decoder. It must never import the
// engine, config, net/http or anything of Kubernetes.
//
// # Two roles
//
// Conn is the core of both roles. A Client is a Conn whose field client is set: it sends the preface, opens streams and
// reads response heads (response.go). A stream to a backend runs on its caller's goroutine, and its writes do not wait
// because of other streams: on a socket a write sends what fits, and a goroutine writes the rest.
//
// # Goroutines and memory
//
// One goroutine reads (Conn.Serve), and one runs each stream, unless its handler is suspended (suspend.go). A goroutine
// that has something to write and finds no writer becomes the writer until its own bytes are written, and first lets
// other runnable goroutines run. These add their data to the next write and continue, so that what becomes ready
// together is sent in one write. The reader never waits to write, so it can always process WINDOW_UPDATE. A connection
// without streams holds neither a read nor a write buffer, only 512 bytes to wait with, and none if it is parked
// (park.go). What remains of a dormant one is 208 bytes, the peer's dynamic table, and the numbers of the latest
// streams that were reset (dormant.go).
//
// What a client can make the proxy hold is bounded: 64 KiB of the request body of each of Options.MaxStreams streams
// and 4 MiB more of those that are being read (12 MiB by default), one header block, one batch of 80 KiB that is being
// written and one that is gathered meanwhile, up to 48 KiB of control frames, and the memory of Options.MaxStreams
// streams.
//
// What a backend can make the proxy hold is bounded by ClientOptions.StreamWindow for each of MaxStreams streams, but
// at most 256 KiB each (32 MiB by default), by what ClientOptions.Widening allows beyond that for all connections
// together, and by two heads of each stream. In both roles DATA is credited to the connection's window when it arrives,
// so that a stream that is not read only stalls itself.
//
// # Strictness
//
// A malformed request (RFC 9113 section 8.1.1) never reaches a handler; its stream is reset with PROTOCOL_ERROR. In
// addition to what sections 8.2 and 8.3 name, these are malformed: bytes that are not allowed in a field name or value,
// Host that differs from :authority, neither of the two, userinfo in it, Content-Length that is repeated or not the sum
// of DATA, :path without "/" (except "OPTIONS *"), Content_Length and Transfer_Encoding, which CGI-like backends
// confuse with the real names, and an extended CONNECT with Content-Length or with anything but DATA after its head. A
// header section that is too large is answered with 431.
//
// # Floods
//
// Frames that achieve nothing (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA and the like) are charged to one
// flood limiter, and resets by the client, or provoked by it, to another. Both recover with time and with useful work:
// four streams that end by themselves compensate for one reset. A client that has exhausted one gets ENHANCE_YOUR_CALM
// and is disconnected; so is one that splits a header block into too many frames.
package http2
