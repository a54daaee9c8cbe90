// Package stress tests the proxy under everything that clients, backends and edits of the configuration may do to it, all
// at random and at the same time, over real sockets. It exists because some defects need an interleaving that nobody
// thinks of: the first that it found sent the beginning of one client's body within another's request. It has a test
// only, TestStress, and must never be imported.
//
// # What happens
//
// Clients (client_test.go) speak HTTP/1.1 and HTTP/2, in the clear and over TLS: pipelined, with Content-Length, in chunks,
// with trailers, with Expect: 100-continue, slowly, with small windows, malformed; they leave at any byte, and reset
// streams at any moment. Backends (backend_test.go) speak both protocols on every port. They refuse connections and
// streams, answer early, late, in part or not in HTTP at all, go away with any last stream, lower
// SETTINGS_MAX_CONCURRENT_STREAMS down to 0, cut the connection at any byte and leave connections stale. Edits (edit_test.go)
// change routes, weights, timeouts, endpoints, the protocol and the server name of a Service, certificates and listeners.
// All of them follow from a seed; what the scheduler makes of it does not repeat.
//
// # What is checked
//
// Each stamp of 64 bytes in a body (identity_test.go) says which request's it is, whether it is of the request or of the
// response to one attempt, and where it stands. Heads and trailers name the request, too. Backends and clients check
// every byte, and also that
//
//   - a request comes to its regular end at a backend only if the client has sent all of it, and with all of it;
//   - a POST is processed by one backend only: another attempt follows one that was refused (RFC 9113 section 8.7);
//   - a client gets the complete response of one attempt, or an answer of the gateway's own with a reason that is
//     possible, or a break that it can see: never a part that looks like the whole, never an answer to something else;
//   - nobody waits for longer than [longest];
//   - the proxy keeps to HTTP/2: windows, heads, the order of frames.
//
// In the end nobody does any harm any more, and every request must succeed; then no request may be counted as under way, and
// every buffer (buffer.Count), goroutine and descriptor must be given back. Run it with the race detector, too.
//
// # How to use it
//
//	go test ./internal/proxy/stress -stress.duration=1h -timeout 0
//	go test ./internal/proxy/stress -stress.seed=42 -stress.classes=h2c,plain -stress.failures=10 -v
//
// By default it runs for 45 s, with -short for 5 s. A failure ends the run unless -stress.failures allows more. It prints
// the seed, what was wrong, and the conversation: the request, the plan of each backend that saw it, what happened when,
// and the lines of the access log; where another's bytes came, the other conversation as well. -stress.classes narrows the
// services that are asked for down to where the defect is; the classes are the routes of edit_test.go. With -v a run shows
// how often everything has happened.
//
// # How to extend it
//
// What a backend may do with a request is a field of plan (plan_test.go), which run.plan sets now and then, and
// peer.answer or peer.respond carry out; what it may do to a connection stands in peer.serve and h2backend.mood. What a
// client may do stands in visitor; what an edit may do is a case of run.edit. If it makes another outcome possible, verdict
// (judge_test.go) has to allow it, and no more than it. A new kind of harm stops where run.calm is set. Random numbers
// come from dice, of which each goroutine has its own.
package stress
