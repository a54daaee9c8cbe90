package match

import (
	"bytes"
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

type pathKind uint8

const (
	exactPath pathKind = iota
	regexPath
	prefixPath
)

// pathMatch is a path condition: a normalized value, or a pattern with its expression.
type pathMatch struct {
	kind  pathKind
	value string
	regex *expression
}

func (p *pathMatch) fits(path []byte, b *stepsLeft) bool {
	switch p.kind {
	case exactPath:
		return string(path) == p.value
	case regexPath:
		return p.regex.match(path, b)
	}
	if p.value == "" {
		return true
	}
	n := len(p.value)
	return len(path) >= n && string(path[:n]) == p.value && (len(path) == n || path[n] == '/')
}

// isCall reports whether a request is a gRPC call by its media type, in any of the protocol's forms (grpc/grpc,
// doc/PROTOCOL-HTTP2.md and doc/PROTOCOL-WEB.md). Case is ignored (RFC 9110 section 8.3.1). If there are several
// content types, it is unknown which one a backend uses.
func isCall(req *message.Request) bool {
	if string(req.Method) != "POST" {
		return false
	}
	line := nextLine(&req.Header, 0, "content-type")
	if line < 0 || nextLine(&req.Header, line+1, "content-type") >= 0 {
		return false
	}
	media, _, _ := bytes.Cut(req.Header.At(line).Value, []byte(";"))
	media = bytes.TrimRight(media, " \t")
	n := len(grpcType)
	return len(media) >= n && bytes.EqualFold(media[:n], grpcType) && (len(media) == n || media[n] == '+' || media[n] == '-')
}

var grpcType = []byte("application/grpc")

// valueMatch is a condition on one header or query parameter.
type valueMatch struct {
	name  string // header names in lower case
	value string
	regex *expression // nil means equality with value
}

// fitsRequest checks everything except the path.
func (m *match[V]) fitsRequest(req *message.Request, b *stepsLeft) bool {
	if m.method != "" && m.method != string(req.Method) {
		return false
	}
	for i := range m.headers {
		if !m.headers[i].fitsHeader(req, b) {
			return false
		}
	}
	for i := range m.query {
		if !m.query[i].fitsQuery(req.Query, b) {
			return false
		}
	}
	return true
}

func (v *valueMatch) fitsHeader(req *message.Request, b *stepsLeft) bool {
	if value, ok := pseudoHeader(req, v.name); ok {
		return v.fitsValue(value, b)
	}
	first := nextLine(&req.Header, 0, v.name)
	if first < 0 {
		return false
	}
	second := nextLine(&req.Header, first+1, v.name)
	switch {
	case second < 0:
		return v.fitsValue(req.Header.At(first).Value, b)
	case v.regex == nil:
		return equalJoined(&req.Header, first, v.name, v.value)
	case b.exceeded():
		return false
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	*buf = appendJoined((*buf)[:0], &req.Header, first, v.name)
	return v.regex.match(*buf, b)
}

// pseudoHeader returns the value for a name that does not refer to header lines.
func pseudoHeader(req *message.Request, name string) (value []byte, ok bool) {
	switch name {
	case "host":
		return req.Host, true
	case ":path":
		return req.Path, true
	}
	value = req.Consumed.Get(name)
	return value, value != nil
}

func (v *valueMatch) fitsValue(value []byte, b *stepsLeft) bool {
	if v.regex != nil {
		return v.regex.match(value, b)
	}
	return string(value) == v.value
}

// scratch holds values that a regular expression needs as one slice.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// nextLine returns the index of the first line with that name at or after i, or -1.
func nextLine(h *message.Fields, i int, name string) int {
	for ; i < h.Len(); i++ {
		if message.EqualFold(h.At(i).Name, name) {
			return i
		}
	}
	return -1
}

// equalJoined compares the joined lines with a name, of which i is the first, with want.
func equalJoined(h *message.Fields, i int, name, want string) bool {
	for {
		v := h.At(i).Value
		if len(want) < len(v) || want[:len(v)] != string(v) {
			return false
		}
		want = want[len(v):]
		if i = nextLine(h, i+1, name); i < 0 {
			return want == ""
		}
		if want == "" || want[0] != ',' {
			return false
		}
		want = want[1:]
		if want != "" && want[0] == ' ' {
			want = want[1:]
		}
	}
}

func appendJoined(dst []byte, h *message.Fields, i int, name string) []byte {
	for sep := ""; i >= 0; i, sep = nextLine(h, i+1, name), "," {
		dst = append(dst, sep...)
		dst = append(dst, h.At(i).Value...)
	}
	return dst
}

func (v *valueMatch) fitsQuery(query []byte, b *stepsLeft) bool {
	raw, ok := queryParam(query, v.name)
	return ok && v.fitsRaw(raw, b)
}

// fitsRaw is fitsValue for an encoded query parameter.
func (v *valueMatch) fitsRaw(raw []byte, b *stepsLeft) bool {
	if v.regex == nil {
		return decodesTo(raw, v.value)
	}
	if bytes.IndexByte(raw, '%') < 0 && bytes.IndexByte(raw, '+') < 0 {
		return v.regex.match(raw, b)
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	*buf = appendDecoded((*buf)[:0], raw)
	return v.regex.match(*buf, b)
}

// queryParam returns the encoded value of the first parameter with that name.
func queryParam(query []byte, name string) (raw []byte, ok bool) {
	raw, _, ok = nextQueryParam(query, name)
	return raw, ok
}

// nextQueryParam is like queryParam, and also returns the query after the parameter.
func nextQueryParam(query []byte, name string) (raw, rest []byte, ok bool) {
	for len(query) > 0 {
		param, rest, _ := bytes.Cut(query, []byte{'&'})
		key, value, _ := bytes.Cut(param, []byte{'='})
		if len(param) > 0 && decodesTo(key, name) {
			return value, rest, true
		}
		query = rest
	}
	return nil, nil, false
}

// QueryValue returns the value of the first query parameter with that name, both decoded as in matching. The value is a
// part of the query if nothing in it is encoded; otherwise it is in room, or in new memory if room is too short.
func QueryValue(query []byte, name string, room []byte) (value []byte, ok bool) {
	raw, ok := queryParam(query, name)
	if bytes.IndexByte(raw, '%') < 0 && bytes.IndexByte(raw, '+') < 0 {
		return raw, ok
	}
	return appendDecoded(room[:0], raw), ok
}

// decodesTo compares without creating the decoded value.
func decodesTo(raw []byte, want string) bool {
	if len(raw) < len(want) {
		return false
	}
	n := 0
	for ; len(raw) > 0; n++ {
		c, size := decodeByte(raw)
		if n == len(want) || want[n] != c {
			return false
		}
		raw = raw[size:]
	}
	return n == len(want)
}

func appendDecoded(dst, raw []byte) []byte {
	for len(raw) > 0 {
		c, size := decodeByte(raw)
		dst = append(dst, c)
		raw = raw[size:]
	}
	return dst
}

// decodeByte decodes the first byte of a query name or value.
func decodeByte(raw []byte) (c byte, size int) {
	switch raw[0] {
	case '+':
		return ' ', 1
	case '%':
		if d, ok := escaped(raw); ok {
			return d, 3
		}
	}
	return raw[0], 1
}
