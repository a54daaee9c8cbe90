// Package h2load runs an independent load generator for HTTP/2 against `moongate run` while routes,
// certificates and endpoints are rewritten under it. It exists because what many connections with many
// streams do to each other, and a reload to all of them, shows in no test of one connection. It must
// never import the product: the binary is built and run as users do it.
package h2load
