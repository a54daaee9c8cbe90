//go:build linux

package load

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/test/bench/frame"
)

// request2 is a request in HTTP/2: header blocks that are made once and sent over and over.
type request2 struct {
	// first is the block of a connection's first request, which fills the table of the other side as
	// browsers do; later that of all others, which names what stands there.
	first, later []byte
	body         []byte
}

// newRequest2 translates a request of HTTP/1.1. The path is a literal each time, because
// real clients ask for something else each time.
func newRequest2(text []byte, scheme string) (*request2, error) {
	head, body, ok := strings.Cut(string(text), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	start := strings.Split(lines[0], " ")
	if !ok || len(start) != 3 {
		return nil, fmt.Errorf("no request of HTTP/1.1: %q", head)
	}
	fields := []hpack.HeaderField{{Name: ":method", Value: start[0]}, {Name: ":scheme", Value: scheme}, {Name: ":authority"},
		{Name: ":path", Value: start[1], Sensitive: true}}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		f := hpack.HeaderField{Name: strings.ToLower(name), Value: strings.TrimSpace(value)}
		switch f.Name {
		case "host":
			fields[2].Value = f.Value
		case "connection":
			return nil, fmt.Errorf("HTTP/2 has no %q", line)
		default:
			fields = append(fields, f)
		}
	}
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	block := func() ([]byte, error) {
		out.Reset()
		for _, f := range fields {
			if err := encoder.WriteField(f); err != nil {
				return nil, err
			}
		}
		return bytes.Clone(out.Bytes()), nil
	}
	r := &request2{body: []byte(body)}
	var err error
	if r.first, err = block(); err != nil {
		return nil, err
	}
	r.later, err = block()
	return r, err
}

// appendHead appends the HEADERS of the request on a stream.
func (r *request2) appendHead(out []byte, stream uint32, last bool) []byte {
	block, flags := r.later, byte(frame.EndHeaders)
	if stream == 1 {
		block = r.first
	}
	if last {
		flags |= frame.EndStream
	}
	return frame.Append(out, frame.Headers, flags, stream, block)
}

// appendBody appends the DATA of a whole body or message, the end of the stream too if last; nothing of an empty one.
func (r *request2) appendBody(out []byte, stream uint32, last bool) []byte {
	for rest := r.body; len(rest) > 0; {
		part := rest[:min(len(rest), frame.MaxSize)]
		flags := byte(0)
		if rest = rest[len(part):]; len(rest) == 0 && last {
			flags = frame.EndStream
		}
		out = frame.Append(out, frame.Data, flags, stream, part)
	}
	return out
}
