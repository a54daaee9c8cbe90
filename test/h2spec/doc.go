// Package h2spec runs an independent tool's cases for HTTP/2 and HPACK against a small server
// around internal/proxy/http2. It is a module of its own, so that the tool's dependencies are not
// the product's; it must import nothing of the product but that package.
package h2spec
