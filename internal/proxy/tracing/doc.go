// Package tracing records spans of requests and has them sent to a collector (XTelemetryPolicy, GEP-4768), in
// OpenTelemetry's SDK, which it exists to keep away from the rest of the data plane. What a client says of its trace
// (W3C Trace Context) decides, as far as the policy lets it, whether a request is recorded, and the backend is told
// which span is its parent's.
//
// A collector that is slow or away costs spans, which are counted, and never a request: a span that has ended waits in
// a queue with a bound. A request that is not recorded allocates nothing.
//
// It imports config, filter, message, observe and upstream; never the engine, translate or k8s.io.
package tracing
