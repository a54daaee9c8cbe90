package http2

import (
	"strconv"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Response heads are encoded without a dynamic table: most of what backends say differs each time, a
// table of our own would be memory of every connection, and so a stream encodes its head
// without regard to others. The client is told so by a table size of 0.

// staticNames are the names of the static table (RFC 7541 appendix A) that responses have.
var staticNames = map[string]byte{
	"accept-ranges": 18, "access-control-allow-origin": 20, "age": 21, "allow": 22, "cache-control": 24,
	"content-disposition": 25, "content-encoding": 26, "content-language": 27, "content-length": 28,
	"content-location": 29, "content-range": 30, "content-type": 31, "date": 33, "etag": 34, "expires": 36,
	"last-modified": 44, "link": 45, "location": 46, "proxy-authenticate": 48, "refresh": 52,
	"retry-after": 53, "server": 54, "set-cookie": 55, "strict-transport-security": 56,
	"transfer-encoding": 57, "vary": 59, "via": 60, "www-authenticate": 61,
}

const (
	nameContentLength = 28
	nameStatus        = 8
	maxKnownName      = 27 // bytes of the longest of staticNames
)

func appendInteger(dst []byte, first byte, bits uint, v int) []byte {
	limit := 1<<bits - 1
	if v < limit {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(limit))
	for v -= limit; v >= 128; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v))
}

func appendString(dst, s []byte) []byte {
	return append(appendInteger(dst, 0, 7, len(s)), s...)
}

func appendStatus(dst []byte, status int) []byte {
	for i, known := range [...]int{200, 204, 206, 304, 400, 404, 500} {
		if status == known {
			return append(dst, 0x80|byte(nameStatus+i))
		}
	}
	dst = appendInteger(dst, 0, 4, nameStatus)
	return append(dst, 3, byte('0'+status/100%10), byte('0'+status/10%10), byte('0'+status%10))
}

func appendLength(dst []byte, n int64) []byte {
	dst = appendInteger(dst, 0, 4, nameContentLength)
	at := len(dst)
	dst = strconv.AppendInt(append(dst, 0), n, 10)
	dst[at] = byte(len(dst) - at - 1)
	return dst
}

// appendField appends a field line; its name gets lower case. Fields that HTTP/2 has no
// place for (RFC 9113 section 8.2.2) are left out.
func appendField(dst []byte, f *message.Field) []byte {
	if len(f.Name) <= maxKnownName {
		var small [maxKnownName]byte
		name := message.AppendLower(small[:0], f.Name)
		if head.IsConnectionSpecific(string(name)) || len(name) == 0 {
			return dst
		}
		if i, ok := staticNames[string(name)]; ok {
			return appendString(appendInteger(dst, 0, 4, int(i)), f.Value)
		}
	}
	dst = append(dst, 0)
	dst = appendInteger(dst, 0, 7, len(f.Name))
	dst = message.AppendLower(dst, f.Name)
	return appendString(dst, f.Value)
}

// appendHead appends the frames of a header section; without a status, of a trailer section.
func appendHead(dst []byte, stream uint32, status int, fields *message.Fields, length int64, end, first bool) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, frameHeaderLen)...)
	if first {
		dst = append(dst, 0x20) // dynamic table size 0
	}
	if status > 0 {
		dst = appendStatus(dst, status)
	}
	if fields != nil {
		for i := range fields.Len() {
			dst = appendField(dst, fields.At(i))
		}
	}
	if length >= 0 {
		dst = appendLength(dst, length)
	}
	var flags uint8
	if end {
		flags = flagEndStream
	}
	size := len(dst) - start - frameHeaderLen
	if size > maxFrame {
		return splitHead(dst, start, stream, flags)
	}
	appendFrameHeader(dst[:start], size, frameHeaders, flags|flagEndHeaders, stream)
	return dst
}

// splitHead turns what is too long for one frame into HEADERS and CONTINUATION.
func splitHead(dst []byte, start int, stream uint32, flags uint8) []byte {
	block := append([]byte(nil), dst[start+frameHeaderLen:]...)
	dst = dst[:start]
	for typ := frameHeaders; len(block) > 0; typ = frameContinuation {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		dst = appendFrameHeader(dst, n, typ, flags, stream)
		dst = append(dst, block[:n]...)
		block, flags = block[n:], 0
	}
	return dst
}
