//go:build linux

package load

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/test/bench/frame"
)

// heads judges the header blocks of a connection in HTTP/2. What the origin answers never changes, so a
// block that is equal to one that was decoded, and does nothing to the table, says the same again.
type heads struct {
	spec     *Spec
	decoder  *hpack.Decoder
	known    [2][]byte // such a block of each place, empty without one
	tableOff bool      // the table was told to have no room: nothing is put there
}

// place is where in a response a header block stands.
type place int

const (
	responseHead place = iota
	trailers
)

// check accepts a whole header block that says what is expected in its place.
func (h *heads) check(block []byte, at place) error {
	if len(h.known[at]) > 0 && bytes.Equal(block, h.known[at]) {
		return nil
	}
	if h.decoder == nil {
		h.decoder = hpack.NewDecoder(frame.TableSize, nil)
	}
	fields, err := h.decoder.DecodeFull(block)
	if err != nil {
		return fmt.Errorf("response head: %w", err)
	}
	if err := h.spec.judge(fields, at); err != nil {
		return err
	}
	if h.changesTable(block) { // and what was known may name other entries now
		h.known[responseHead], h.known[trailers] = h.known[responseHead][:0], h.known[trailers][:0]
		return nil
	}
	h.known[at] = append(h.known[at][:0], block...)
	return nil
}

// judge accepts a 200 with the expected Content-Length, or an answer of gRPC, or its trailers with status 0.
func (s *Spec) judge(fields []hpack.HeaderField, at place) error {
	want := [][2]string{{":status", "200"}, {"content-length", strconv.Itoa(s.BodySize)}}
	switch {
	case at == trailers:
		want = [][2]string{{"grpc-status", "0"}}
	case s.Exchange.call():
		want[1] = [2]string{"content-type", "application/grpc"}
	}
	for _, w := range want {
		got := ""
		for _, f := range fields {
			if f.Name == w[0] {
				got = f.Value
			}
		}
		if got != w[1] {
			return fmt.Errorf("%s %q, want %q", w[0], got, w[1])
		}
	}
	return nil
}

// changesTable tells whether a valid block does anything to the dynamic table (RFC 7541 section 6).
func (h *heads) changesTable(block []byte) (changes bool) {
	for len(block) > 0 {
		switch first := block[0]; {
		case first&0x80 != 0: // indexed
			_, block = integer(block, 7)
		case first&0x40 != 0: // literal, to be put into the table
			changes = changes || !h.tableOff
			block = skipLiteral(block, 6)
		case first&0x20 != 0: // size of the table
			var size int
			size, block = integer(block, 5)
			h.tableOff = size == 0
			changes = true
		default: // literal
			block = skipLiteral(block, 4)
		}
	}
	return changes
}

// integer reads an integer with a prefix of n bits.
func integer(b []byte, n uint) (int, []byte) {
	limit := 1<<n - 1
	v := int(b[0]) & limit
	b = b[1:]
	if v < limit {
		return v, b
	}
	for shift := 0; ; shift += 7 {
		c := b[0]
		b = b[1:]
		if v += int(c&0x7f) << shift; c < 0x80 {
			return v, b
		}
	}
}

func skipLiteral(b []byte, n uint) []byte {
	name, b := integer(b, n)
	if name == 0 {
		b = skipString(b)
	}
	return skipString(b)
}

func skipString(b []byte) []byte {
	size, b := integer(b, 7)
	return b[size:]
}
