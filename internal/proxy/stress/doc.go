// Package stress tests the proxy under everything that clients, backends and edits of the configuration may do to it,
// all at random and at the same time, over real sockets. It exists because some bugs need an interleaving that no test
// author thinks of: the first one that it found sent the beginning of one client's body within another's request. It
// has only one test, TestStress, and must never be imported.
//
// # What happens
//
// Clients (client_test.go) use HTTP/1.1 and HTTP/2, with and without TLS: pipelined, with Content-Length, in chunks,
// with trailers, with Expect: 100-continue, slowly, with small windows, malformed; they leave at any byte, and reset
// streams at any moment. Backends (backend_test.go) use both protocols on every port. They refuse connections and
// streams, answer early, late, in part or not with HTTP at all, send GOAWAY with any last stream, lower
// SETTINGS_MAX_CONCURRENT_STREAMS down to 0, cut the connection at any byte and leave connections stale. Edits
// (edit_test.go) change routes, weights, timeouts, endpoints, the protocol and the server name of a Service,
// certificates and listeners. All of these are derived from a seed; what the scheduler makes of it is not reproducible.
//
// # What is checked
//
// Each stamp of 64 bytes in a body (identity_test.go) identifies its request, whether it belongs to the request or to
// the response to one attempt, and its position. Heads and trailers identify the request too. Backends and clients
// check every byte, and also that
//
//   - a request ends regularly at a backend only if the client has sent all of it, and with all of it;
//   - a POST is processed by one backend only: another attempt follows one that was refused (RFC 9113 section 8.7);
//   - a client gets the complete response of one attempt, or an answer of the gateway with a possible reason, or a
//     visible break: never a part that looks complete, never an answer to something else;
//   - nothing waits for longer than [longest];
//   - the proxy complies with HTTP/2: windows, heads, the order of frames.
//
// In the end all disturbances stop, and every request must succeed. Then no request may be counted as in progress, and
// every buffer (buffer.Count), goroutine and descriptor must have been released. Run it with the race detector too.
//
// # How to use it
//
//	go test ./internal/proxy/stress -stress.duration=1h -timeout 0
//	go test ./internal/proxy/stress -stress.seed=42 -stress.classes=h2c,plain -stress.failures=10 -v
//
// By default it runs for 45 s, with -short for 5 s. A failure ends the run unless -stress.failures allows more. It
// prints the seed, what was wrong, and the conversation: the request, the plan of each backend that received it, what
// happened when, and the lines of the access log; if bytes of another request appeared, the other conversation as well.
// -stress.classes restricts the services that are used, to locate a bug; the classes are the routes of edit_test.go.
// With -v a run shows how often everything has happened.
//
// # How to extend it
//
// What a backend may do with a request is a field of plan (plan_test.go), which run.plan sets from time to time, and
// peer.answer or peer.respond carry out; what it may do to a connection is in peer.serve and h2backend.mood. What a
// client may do is in visitor; what an edit may do is a case of run.edit. If it makes another outcome possible, verdict
// (judge_test.go) must allow it, and nothing more. A new kind of disturbance must stop when run.calm is set. Random
// numbers come from dice, of which each goroutine has its own.
package stress
