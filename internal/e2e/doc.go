// Package e2e tests the gateway as users run it: manifests in a folder, real sockets, requests and responses. It exists to test what
// no package can test alone. It contains tests only and must never be imported.
package e2e
