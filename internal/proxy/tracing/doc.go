// Package tracing records spans of requests and sends them to a collector (XTelemetryPolicy, GEP-4768). It uses
// OpenTelemetry's SDK, and exists to separate that from the rest of the data plane. The client's trace context (W3C
// Trace Context) decides, as far as the policy allows it, whether a request is recorded, and the backend receives the
// parent span.
//
// If a collector is slow or unreachable, spans are lost and counted, but requests are not affected: ended spans wait in
// a bounded queue. A request that is not recorded allocates nothing.
//
// It imports config, filter, message, observe and upstream; never the engine, translate or k8s.io.
package tracing
