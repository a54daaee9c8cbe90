// Package http2 is HTTP/2 connections (RFC 9113) of clients and to backends: frames to
// streams and back, with flow control, priorities (RFC 9218) and extended CONNECT
// (RFC 8441). It exists so that all that HTTP/2 adds to a request, and all that a
// hostile peer can do with it, is dealt with in one place; whoever carries out a
// request sees a Stream of a client, with a Head, a body to read and a response to write, or
// opens a ClientStream to a backend.
//
// It imports proxy/message, the packages below it, the standard library and hpack's decoder, never the
// engine, config, net/http or anything of Kubernetes.
//
// # Two roles
//
// Conn is the core of both. A Client is a Conn whose field client is set: it sends the preface, opens streams and reads response
// heads (response.go). A stream to a backend runs on its caller's goroutine, which a write never makes wait for
// others: on a socket it writes what fits, and a goroutine writes the rest.
//
// # Goroutines and memory
//
// One goroutine reads (Conn.Serve) and one runs each stream, unless its handler is suspended (suspend.go). Who has something to write and finds
// no writer becomes that until its own bytes are gone, and lets others that can run go first; they add what they have
// to the next write and go on. So what becomes ready together leaves in one write. The reader never waits to write, so it
// can always take WINDOW_UPDATE. A connection without streams holds neither a
// read nor a write buffer, only 512 bytes to wait with.
//
// What a client can make us hold is bounded: 64 KiB of the request body of each of Options.MaxStreams streams and 4 MiB more of
// those that are read, 12 MiB by default,
// one header block, one batch of 80 KiB on its way out and one that is gathered meanwhile, up to 48 KiB of
// control frames, and what Options.MaxStreams streams occupy.
//
// What a backend can make us hold: ClientOptions.StreamWindow for each of MaxStreams streams but at most 256 KiB, 32 MiB by default, what
// ClientOptions.Widening has beyond that for all connections together, and two heads of each stream. In both roles DATA is credited to the connection's window when it comes, so that who does not
// read stalls its own stream only.
//
// # Strictness
//
// A request that is malformed (RFC 9113 section 8.1.1) is never handed over; its stream
// is reset with PROTOCOL_ERROR. That is, beside what sections 8.2 and 8.3 name: bytes
// that are no field-name or field-value, Host that differs from :authority, none of both,
// userinfo in it, Content-Length that is repeated or not the sum of DATA,
// :path without "/" (but for "OPTIONS *"), Content_Length and Transfer_Encoding, which
// CGI-like backends confuse with the real names, and an extended CONNECT with
// Content-Length or with anything but DATA behind its head. A header section that is too large is
// answered 431.
//
// # Floods
//
// Frames that bring nothing forward (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA and
// the like) draw on one flood limiter, resets by the client and such as it provokes on another.
// Both recover with time and with honest work: four streams that end by themselves are worth one reset. Who has exhausted one gets
// ENHANCE_YOUR_CALM and is gone; so does who splits a header block into too many frames.
package http2
