// Package encode writes header and trailer sections as HEADERS and CONTINUATION frames (RFC 9113 section 4.3, RFC
// 7541). It exists so that everything that the proxy sends over HTTP/2 is written in one place, whatever the role.
//
// Field sections are encoded without a dynamic table: most values differ each time, a table would take memory for every
// connection, and without one each stream can encode its section independently. The peer is told so by a table size of
// 0 before the first section.
//
// It is pure and imports proxy/message, its neighbours frame and head, and strconv, never a connection.
package encode

import (
	"strconv"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// staticNames are the names of the static table (RFC 7541 appendix A).
var staticNames = map[string]byte{
	"accept": 19, "accept-charset": 15, "accept-encoding": 16, "accept-language": 17,
	"accept-ranges": 18, "access-control-allow-origin": 20, "age": 21, "allow": 22, "authorization": 23, "cache-control": 24,
	"content-disposition": 25, "content-encoding": 26, "content-language": 27, "content-length": 28,
	"content-location": 29, "content-range": 30, "content-type": 31, "cookie": 32, "date": 33, "etag": 34, "expect": 35,
	"expires": 36, "from": 37, "if-match": 39, "if-modified-since": 40, "if-none-match": 41, "if-range": 42,
	"if-unmodified-since": 43, "last-modified": 44, "link": 45, "location": 46, "max-forwards": 47,
	"proxy-authenticate": 48, "proxy-authorization": 49, "range": 50, "referer": 51, "refresh": 52,
	"retry-after": 53, "server": 54, "set-cookie": 55, "strict-transport-security": 56,
	"transfer-encoding": 57, "user-agent": 58, "vary": 59, "via": 60, "www-authenticate": 61,
}

const (
	nameAuthority     = 1
	fieldMethodGET    = 2
	fieldMethodPOST   = 3
	nameMethod        = 2
	fieldPathSlash    = 4
	namePath          = 4
	fieldSchemeHTTP   = 6
	fieldSchemeHTTPS  = 7
	nameScheme        = 6
	nameStatus        = 8
	nameContentLength = 28
	nameExpect        = 35
	indexed           = 0x80
	inserted          = 0x40
	tableSize         = 0x20
	// literal begins a never-indexed field, which no hop may store in a table. An intermediary must not change that for
	// a field that it received as such (RFC 7541 section 6.2.3), and which fields those were is not known here.
	literal      = 0x10
	maxKnownName = 27 // bytes of the longest of staticNames
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

func appendString[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(appendInteger(dst, 0, 7, len(s)), s...)
}

// FirstDynamic is the index of the newest field in the dynamic table (RFC 7541 section 2.3.3).
const FirstDynamic = 62

// AppendIndexed appends a field line that is the index of a field (RFC 7541 section 6.1).
func AppendIndexed(dst []byte, index int) []byte { return appendInteger(dst, indexed, 7, index) }

// AppendInserted appends a field line that is also inserted into the dynamic table (RFC 7541 section 6.2.1).
func AppendInserted(dst []byte, name, value string) []byte {
	index := staticNames[name]
	dst = appendInteger(dst, inserted, 6, int(index))
	if index == 0 {
		dst = appendString(dst, name)
	}
	return appendString(dst, value)
}

// AppendTableSize appends a dynamic table size update (RFC 7541 section 6.3).
func AppendTableSize(dst []byte, size int) []byte { return appendInteger(dst, tableSize, 5, size) }

// appendNamed appends a field whose name is in the static table.
func appendNamed[T ~string | ~[]byte](dst []byte, name int, value T) []byte {
	return appendString(appendInteger(dst, literal, 4, name), value)
}

func appendStatus(dst []byte, status int) []byte {
	for i, known := range [...]int{200, 204, 206, 304, 400, 404, 500} {
		if status == known {
			return append(dst, indexed|byte(nameStatus+i))
		}
	}
	dst = appendInteger(dst, literal, 4, nameStatus)
	return append(dst, 3, byte('0'+status/100%10), byte('0'+status/10%10), byte('0'+status%10))
}

func appendLength(dst []byte, n int64) []byte {
	dst = appendInteger(dst, literal, 4, nameContentLength)
	at := len(dst)
	dst = strconv.AppendInt(append(dst, 0), n, 10)
	dst[at] = byte(len(dst) - at - 1)
	return dst
}

// appendField appends a field line, with its name in lower case. It omits fields that HTTP/2 does not allow (RFC 9113
// section 8.2.2), and for requests those that Request replaces.
func appendField(dst []byte, f *message.Field, request bool) []byte {
	if len(f.Name) <= maxKnownName {
		var small [maxKnownName]byte
		name := message.AppendLower(small[:0], f.Name)
		if head.IsConnectionSpecific(string(name)) || len(name) == 0 || request && stoodFor(string(name)) {
			return dst
		}
		if i, ok := staticNames[string(name)]; ok {
			return appendNamed(dst, int(i), f.Value)
		}
	}
	dst = append(dst, literal)
	dst = appendInteger(dst, 0, 7, len(f.Name))
	dst = message.AppendLower(dst, f.Name)
	return appendString(dst, f.Value)
}

func stoodFor(name string) bool {
	switch name {
	case "te", "host", "expect", "content-length", "http2-settings":
		return true
	}
	return false
}

func appendFields(dst []byte, fields *message.Fields, request bool) []byte {
	if fields != nil {
		for i := range fields.Len() {
			dst = appendField(dst, fields.At(i), request)
		}
	}
	return dst
}

// AppendSection appends the frames of a response's header section or, if status is 0, of a trailer section. A length of
// 0 or more is sent as Content-Length. first means that the peer may not know yet that there is no dynamic table.
func AppendSection(dst []byte, stream uint32, status int, fields *message.Fields, length int64, end, first bool) []byte {
	start := len(dst)
	dst = begin(dst, first)
	if status > 0 {
		dst = appendStatus(dst, status)
	}
	dst = appendFields(dst, fields, false)
	if length >= 0 {
		dst = appendLength(dst, length)
	}
	return finish(dst, start, stream, end)
}

// Request is the head of a request. Connection-specific fields, TE, Host, Content-Length and Expect in its Header are
// omitted. Host is sent as :authority unless it is empty.
type Request struct {
	*message.Request
	Scheme         string // "http" or "https"
	Length         int64  // sent as Content-Length unless it is -1
	TETrailers     bool   // send TE: trailers
	ExpectContinue bool   // send Expect: 100-continue
}

// AppendRequest appends the frames of a request's header section. An empty Host is omitted.
func AppendRequest(dst []byte, stream uint32, r *Request, end, first bool) []byte {
	start := len(dst)
	dst = begin(dst, first)
	switch string(r.Method) {
	case "GET":
		dst = append(dst, indexed|fieldMethodGET)
	case "POST":
		dst = append(dst, indexed|fieldMethodPOST)
	default:
		dst = appendNamed(dst, nameMethod, r.Method)
	}
	connect := len(r.Path) == 0 // CONNECT has neither :scheme nor :path (RFC 9113 section 8.5)
	switch {
	case connect:
	case r.Scheme == "http":
		dst = append(dst, indexed|fieldSchemeHTTP)
	case r.Scheme == "https":
		dst = append(dst, indexed|fieldSchemeHTTPS)
	default:
		dst = appendNamed(dst, nameScheme, r.Scheme)
	}
	if len(r.Host) > 0 {
		dst = appendNamed(dst, nameAuthority, r.Host)
	}
	if !connect {
		dst = appendPath(dst, r.Request)
	}
	dst = appendFields(dst, &r.Header, true)
	if r.Length >= 0 {
		dst = appendLength(dst, r.Length)
	}
	if r.TETrailers {
		dst = append(dst, literal)
		dst = appendString(appendString(dst, "te"), "trailers")
	}
	if r.ExpectContinue {
		dst = appendNamed(dst, nameExpect, "100-continue")
	}
	return finish(dst, start, stream, end)
}

// ListSize returns the size of the section that AppendRequest appends, as SETTINGS_MAX_HEADER_LIST_SIZE counts it (RFC
// 9113 section 6.5.2).
func ListSize(r *Request) (size int64) {
	add := func(name, value int) { size += int64(name+value) + perField }
	add(len(":method"), len(r.Method))
	if len(r.Path) > 0 {
		add(len(":scheme"), len(r.Scheme))
		path := len(r.Path)
		if r.HasQuery {
			path += 1 + len(r.Query)
		}
		add(len(":path"), path)
	}
	if len(r.Host) > 0 {
		add(len(":authority"), len(r.Host))
	}
	for i := range r.Header.Len() {
		if f := r.Header.At(i); !leftOut(f.Name) {
			add(len(f.Name), len(f.Value))
		}
	}
	if r.Length >= 0 {
		var digits [20]byte
		add(len("content-length"), len(strconv.AppendInt(digits[:0], r.Length, 10)))
	}
	if r.TETrailers {
		add(len("te"), len("trailers"))
	}
	if r.ExpectContinue {
		add(len("expect"), len("100-continue"))
	}
	return size
}

// MostOverhead returns by how much ListSize may exceed the bytes that AppendRequest has appended: each field counts
// perField more, and its name if that is in the static table.
func MostOverhead(r *Request) int64 {
	return int64(r.Header.Len()+ownFields) * (perField + maxKnownName)
}

// ownFields is the largest number of fields in a section that are not in the request's Header.
const ownFields = 8

// perField is what a field counts in addition to its name and value.
const perField = 32

// leftOut reports whether requests are sent without fields of that name.
func leftOut(name []byte) bool {
	if len(name) > maxKnownName {
		return false
	}
	var small [maxKnownName]byte
	n := message.AppendLower(small[:0], name)
	return head.IsConnectionSpecific(string(n)) || len(n) == 0 || stoodFor(string(n))
}

func appendPath(dst []byte, r *message.Request) []byte {
	if !r.HasQuery {
		if string(r.Path) == "/" {
			return append(dst, indexed|fieldPathSlash)
		}
		return appendNamed(dst, namePath, r.Path)
	}
	dst = appendInteger(dst, literal, 4, namePath)
	dst = appendInteger(dst, 0, 7, len(r.Path)+1+len(r.Query))
	dst = append(append(dst, r.Path...), '?')
	return append(dst, r.Query...)
}

// begin appends room for a frame header.
func begin(dst []byte, first bool) []byte {
	var room [frame.HeaderLen]byte
	dst = append(dst, room[:]...)
	if first {
		dst = AppendTableSize(dst, 0)
	}
	return dst
}

// finish turns the field block after dst[start:] into frames.
func finish(dst []byte, start int, stream uint32, end bool) []byte {
	var flags uint8
	if end {
		flags = frame.FlagEndStream
	}
	size := len(dst) - start - frame.HeaderLen
	if size > frame.MaxPayload {
		return split(dst, start, stream, flags)
	}
	frame.AppendHeader(dst[:start], size, frame.Headers, flags|frame.FlagEndHeaders, stream)
	return dst
}

// split divides a block that is too long for one frame into HEADERS and CONTINUATION.
func split(dst []byte, start int, stream uint32, flags uint8) []byte {
	block := append([]byte(nil), dst[start+frame.HeaderLen:]...)
	dst = dst[:start]
	for typ := frame.Headers; len(block) > 0; typ = frame.Continuation {
		n := min(len(block), frame.MaxPayload)
		if n == len(block) {
			flags |= frame.FlagEndHeaders
		}
		dst = frame.AppendHeader(dst, n, typ, flags, stream)
		dst = append(dst, block[:n]...)
		block, flags = block[n:], 0
	}
	return dst
}
