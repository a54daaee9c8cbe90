// Package interop has programs of others understand each other by way of a gateway: gRPC's own test programs, client and server as their module has them; and a
// gateway understand an authorization server that is made of Envoy's published API; and a library of SARIF read what moongate check prints. It is a module of its
// own, so that what they need is not the product's; it must import nothing of the product.
package interop
