// Package proofs keeps docs/conformance.md: every feature of the Gateway API, and every field of the kinds that have routes of HTTP and gRPC, with the
// tests that prove what Moongate makes of it. It exists so that no field is forgotten: which there are is read from the API's own Go types,
// which tests there are from the repository and from the official suite, and only what proves what is written by hand, in proofs.yaml.
//
// It reads the repository's files and must never import the implementation.
package proofs
