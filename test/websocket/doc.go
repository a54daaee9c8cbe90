// Package websocket has an independent WebSocket library, as client and as server, talk to itself by way of a gateway: over HTTP/1.1 and HTTP/2, in cleartext
// and over TLS. It is a module of its own, so that what it needs is not the product's; it must import nothing of the product.
package websocket
