// Package conformance runs the Gateway API's own conformance suite, as it is,
// against an implementation on the test cluster, and checks that the run was a whole
// one: every test that the GatewayClass's features imply was executed, and none was
// skipped. It exists because the suite's report says neither when features
// are given by hand or a test gives up halfway. It must never import the
// implementation: what it knows about it comes from the API server.
package conformance
