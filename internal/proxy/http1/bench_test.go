package http1

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const browserHead = "GET /assets/app.min.js?v=1.2.3&lang=en HTTP/1.1\r\n" +
	"Host: www.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
	"Accept-Language: en-US,en;q=0.7,it;q=0.3\r\n" +
	"Accept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Referer: https://www.example.com/start/page.html\r\n" +
	"Cookie: session=0a1b2c3d4e5f60718293a4b5c6d7e8f9; theme=dark\r\n" +
	"Connection: keep-alive\r\n" +
	"\r\n"

const smallHead = "GET /api/v1/items?id=42 HTTP/1.1\r\nHost: api.example.com\r\nAccept: */*\r\nUser-Agent: bench\r\n\r\n"

const plainResponse = "HTTP/1.1 200 OK\r\n" +
	"Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n" +
	"Server: backend\r\n" +
	"Content-Type: text/html; charset=utf-8\r\n" +
	"Content-Length: 1024\r\n" +
	"Cache-Control: public, max-age=3600\r\n" +
	"ETag: \"5f3c-0123456789abcdef\"\r\n" +
	"\r\n"

func BenchmarkParseRequest(b *testing.B) {
	for name, head := range map[string]string{"browser": browserHead, "small": smallHead} {
		b.Run(name, func(b *testing.B) {
			benchmarkParse(b, []byte(head))
		})
	}
}

func benchmarkParse(b *testing.B, buf []byte) {
	var req message.Request
	var h RequestHead
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRequest(buf, &req, &h, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseRequestNormalised(b *testing.B) {
	benchmarkParse(b, []byte("GET /a/./b/%7euser/../c%2fd HTTP/1.1\r\nHost: WWW.Example.com:8080\r\n\r\n"))
}

func BenchmarkAppendRequestHead(b *testing.B) {
	var req message.Request
	var h RequestHead
	if _, err := ParseRequest([]byte(browserHead), &req, &h, nil); err != nil {
		b.Fatal(err)
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendRequestHead(dst[:0], &req, h.Framing, h.ContentLength, Hop{})
	}
}

func BenchmarkParseResponse(b *testing.B) {
	var resp message.Response
	var h ResponseHead
	buf, method := []byte(plainResponse), []byte("GET")
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseResponse(buf, method, &resp, &h, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendResponseHead(b *testing.B) {
	var resp message.Response
	var h ResponseHead
	if _, err := ParseResponse([]byte(plainResponse), []byte("GET"), &resp, &h, nil); err != nil {
		b.Fatal(err)
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendResponseHead(dst[:0], &resp, h.Framing, h.ContentLength, Hop{})
	}
}

// BenchmarkDecodeChunked decodes 16 KiB in four chunks that arrive at once.
func BenchmarkDecodeChunked(b *testing.B) {
	var wire []byte
	for range 4 {
		wire = AppendChunkHead(wire, 4096)
		wire = append(wire, make([]byte, 4096)...)
		wire = append(wire, ChunkEnd...)
	}
	wire = AppendLastChunk(wire, nil)
	src := make([]byte, len(wire))
	var body Body
	b.SetBytes(4 * 4096)
	b.ReportAllocs()
	for b.Loop() {
		copy(src, wire) // decoding overwrites it
		body.Init(Chunked, -1, nil)
		if data, _, err := body.Decode(src); err != nil || len(data) != 4*4096 || !body.Done() {
			b.Fatal(len(data), err)
		}
	}
}
