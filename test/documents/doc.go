// Package documents runs the commands of the documents that need a cluster: as they are written, by a shell, with the real
// helm and kubectl, on a real API server, and with requests to the Gateways that they make. What needs no cluster is run by
// internal/e2e, which also checks that every block of every document is run by one of the two. It must never be imported.
package documents
