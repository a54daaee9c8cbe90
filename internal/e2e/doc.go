// Package e2e tests the gateway as its users have it: manifests in a folder, real
// sockets, requests in, answers out. It exists to prove what no package can prove
// alone. It has tests only and must never be imported.
package e2e
