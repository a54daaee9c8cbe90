//go:build linux

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/origin"
)

const (
	apiHost = "api.example.test"
	wwwHost = "www.example.test"
	// Hosts whose backends speak something else than HTTP/1.1 in cleartext.
	secureHost = "secure.example.test"
	socketHost = "socket.example.test"
	grpcHost   = "grpc.example.test"
)

// messageSize is the size of a message of gRPC and of WebSocket in bytes, with all that frames it.
const messageSize = 128

// uploadBody is the size of workload C's request body in bytes.
const uploadBody = 16 << 10

// The requests, precomputed; each carries the fields of an ordinary browser.
var (
	getSmall     = request("GET", apiHost, "/api/v2/items/42?fields=name,price", "")
	getBig       = request("GET", apiHost, "/api/v2/big/42?fields=all", "")
	postBody     = request("POST", apiHost, "/api/v2/items?notify=1", strings.Repeat("0123456789abcdef", uploadBody/16))
	getHuge      = request("GET", apiHost, "/api/v2/huge/42?fields=all", "")
	postHuge     = request("POST", apiHost, "/api/v2/items?notify=2", strings.Repeat("0123456789abcdef", origin.HugeBody/16))
	getOtherHost = request("GET", wwwHost, "/shop/index.html", "")
	getInspect   = request("GET", apiHost, "/api/v2/inspect?a=b", "")
	postInspect  = request("POST", apiHost, "/api/v2/inspect", "hello")
	getSecure    = request("GET", secureHost, "/api/v2/items/42?fields=name,price", "")
	getSocket    = []byte(strings.Replace(string(request("GET", socketHost, "/socket", "")), "\r\n\r\n", "\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 1))
	callUnary  = call(origin.Unary)
	callWatch  = call(origin.Watch)
	callEcho   = call(origin.Echo)
	getClosing = []byte(strings.Replace(string(getSmall), "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
)

// hostSecure is the line of a request that goes to the origin over TLS.
var hostSecure = []byte("\r\nHost: " + secureHost + "\r\n")

func request(method, host, target, body string) []byte {
	head := method + " " + target + " HTTP/1.1\r\n" +
		"Host: " + host + "\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
		"Accept: application/json, text/plain;q=0.9, */*;q=0.8\r\n" +
		"Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\n" +
		"Accept-Encoding: gzip, deflate, br\r\n" +
		"Referer: https://www.example.test/shop/index.html\r\n" +
		"Cookie: session=5e0c1b7a9d3f42688a; theme=dark\r\n" +
		"Cache-Control: no-cache\r\n"
	if method == "POST" {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return []byte(head + "\r\n" + body)
}

// call is a call of gRPC, as a request of HTTP/1.1 would be written, with one message that begins with mode.
func call(mode byte) []byte {
	head := "POST /items.v2.Items/Get HTTP/1.1\r\n" +
		"Host: " + grpcHost + "\r\n" +
		"Content-Type: application/grpc\r\n" +
		"User-Agent: grpc-go/1.80.0\r\n" +
		"TE: trailers\r\n" +
		"Grpc-Timeout: 3600S\r\n\r\n"
	size := messageSize - 5 // of the message behind its flag and length
	return append([]byte(head), append([]byte{0, 0, 0, 0, byte(size), mode}, strings.Repeat("m", size-1)...)...)
}

// socketMessage is a binary message from a client, masked with zeros (RFC 6455 section 5.2).
func socketMessage() []byte {
	size := messageSize - 8
	return append([]byte{0x82, 0x80 | 126, 0, byte(size), 0, 0, 0, 0}, strings.Repeat("m", size)...)
}

// datagram is one of messageSize bytes.
func datagram() []byte { return bytes.Repeat([]byte("datagram"), messageSize/8) }

// traffic is a workload of requests, measured in CPU time per request.
type traffic struct {
	title      string
	request    []byte
	bodySize   int // of the response
	secure     bool
	http2      bool    // with settings.streams requests in flight on each connection, as many in all
	perRequest bool    // a connection for each request
	contended  bool    // another process wants all of the proxy's CPU too, so that the proxy is busy before the load side is
	rate       float64 // requests a second that are due, in an open loop; 0 is a closed one
	burst      int     // datagrams that a socket has on their way together; 0 is one
	bytes      int     // of a request and its response together, if the cost is that of bytes
	exchange   load.Exchange
	message    []byte // of a WebSocket
	variant    variant
}

// without reports whether a contender cannot do the work: Caddy's standard modules forward neither TCP nor UDP, HAProxy no UDP, and the
// floor is one of HTTP/1.1 without TLS and without a log.
func (t *traffic) without(name string) bool {
	switch name {
	case "caddy":
		return t.variant.Layer4
	case "haproxy":
		return t.exchange == load.Datagrams
	case floor:
		return t.variant.Layer4 || t.variant.AccessLog || t.secure || t.http2 || bytes.Contains(t.request, hostSecure)
	}
	return false
}

// workload is a name and how it is measured.
type workload struct {
	name string
	run  func(*bench) error
}

// workloads in the order of the report; main's flags need only the names, so it is a function.
func workloads() []workload {
	small := traffic{title: "A: GET 1 KiB", request: getSmall, bodySize: origin.SmallBody}
	a, big, upload, secure, logged := small, small, small, small, small
	big.title, big.request, big.bodySize = "B: GET 64 KiB", getBig, origin.BigBody
	big.variant.HAProxyBuffer = 32 << 10
	upload.title, upload.request = "C: POST 16 KiB", postBody
	upload.variant.HAProxyBuffer = 64 << 10
	secure.title, secure.secure = "TLS: A over TLS 1.3", true
	http2, http2Upload := secure, upload
	http2.title, http2.http2 = "HTTP/2: A by HTTP/2 over TLS 1.3", true
	prior := http2
	prior.title, prior.secure = "HTTP/2 without TLS: A", false
	http2Upload.title, http2Upload.secure, http2Upload.http2 = "HTTP/2: C by HTTP/2 over TLS 1.3", true, true
	logged.title, logged.variant.AccessLog = "A with access logs", true
	connect := traffic{title: "new connections", request: getClosing, bodySize: origin.SmallBody, perRequest: true}
	handshake := connect
	handshake.title, handshake.secure = "new TLS connections", true
	contended := connect
	contended.title, contended.contended = "new connections, contended CPU", true
	reencrypt, socket, unary := small, small, small
	reencrypt.title, reencrypt.request = "A with TLS to the backend", getSecure
	socket.title, socket.request, socket.exchange, socket.message = "WebSocket: messages of 128 bytes", getSocket, load.WebSocket, socketMessage()
	socket.bodySize = messageSize
	unary.title, unary.request, unary.bodySize, unary.http2, unary.exchange = "gRPC: unary calls of 128 bytes", callUnary, messageSize, true, load.Unary
	streaming := unary
	streaming.title, streaming.request, streaming.exchange = "gRPC: messages of 128 bytes on open streams", callEcho, load.Streaming
	tunnel, tunnelConnect := small, connect
	tunnel.title, tunnel.request, tunnel.bodySize, tunnel.variant.Layer4 = "TCP: 1 MiB to the client", getHuge, origin.HugeBody, true
	tunnel.bytes, tunnel.variant.NginxBuffer, tunnel.variant.HAProxyBuffer = origin.HugeBody, 128<<10, 128<<10
	tunnelUpload := tunnel
	tunnelUpload.title, tunnelUpload.request, tunnelUpload.bodySize = "TCP: 1 MiB from the client", postHuge, origin.SmallBody
	tunnelConnect.title, tunnelConnect.variant.Layer4 = "TCP: new connections", true
	passthrough, passthroughConnect := big, tunnelConnect
	passthrough.title, passthrough.secure, passthrough.variant = "TLS passthrough: 64 KiB to the client", true, variant{Layer4: true, NginxBuffer: 64 << 10, HAProxyBuffer: 64 << 10}
	passthrough.bytes = origin.BigBody
	passthroughConnect.title, passthroughConnect.secure = "TLS passthrough: new connections", true
	datagrams := traffic{title: "UDP: datagrams of 128 bytes", exchange: load.Datagrams, message: datagram(), variant: variant{Layer4: true}}
	bursts := datagrams
	bursts.title, bursts.burst = "UDP: three datagrams of 128 bytes together", 3 // more would not fit into the default receive buffer of a socket
	return []workload{
		{"A", a.run}, {"B", big.run}, {"C", upload.run}, {"TLS", secure.run},
		{"http2", http2.run}, {"h2c", prior.run}, {"http2-upload", http2Upload.run},
		{"connect", connect.run}, {"connect-contended", contended.run}, {"handshake", handshake.run}, {"log", logged.run},
		{"grpc", unary.run}, {"grpc-stream", streaming.run}, {"backend-tls", reencrypt.run}, {"websocket", socket.run},
		{"idle", func(b *bench) error { return b.runIdle(b.idleConnections(false)) }},
		{"idle-tls", func(b *bench) error { return b.runIdle(b.idleConnections(true)) }},
		{"idle-grpc", func(b *bench) error { return b.runIdle(b.watches()) }},
		{"tcp", tunnel.run}, {"tcp-upload", tunnelUpload.run}, {"tcp-connect", tunnelConnect.run},
		{"tls-passthrough", passthrough.run}, {"tls-passthrough-connect", passthroughConnect.run},
		{"udp", datagrams.run}, {"udp-burst", bursts.run},
		{"idle-tcp", func(b *bench) error { return b.runIdle(b.tunnels()) }},
		{"open", func(b *bench) error { return b.runOpen(&small) }},
		{"filters", (*bench).runFilters},
		{"policies", (*bench).runPolicies},
		{"routes", func(b *bench) error { return b.runRoutes(&small) }},
		{"edits", (*bench).runEdits},
	}
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	return names
}

// layer4 reports whether a workload is about connections that are forwarded without being looked into, or datagrams.
func layer4(name string) bool {
	return slices.Contains([]string{"tcp", "tcp-upload", "tcp-connect", "tls-passthrough", "tls-passthrough-connect", "udp", "udp-burst", "idle-tcp"}, name)
}

func (b *bench) runWorkload(name string) error {
	for _, w := range workloads() {
		if w.name == name {
			return w.run(b)
		}
	}
	return fmt.Errorf("unknown")
}
