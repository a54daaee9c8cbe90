// Package interop has gRPC's own test programs, client and server as their module has them, talk to each other by way of a gateway. It is a module of its
// own, so that what they need is not the product's; it must import nothing of the product.
package interop
