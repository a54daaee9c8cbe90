//go:build linux

package load

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/net/http2/hpack"
)

// heads judges the response heads of a connection in HTTP/2. The origin's head never changes, so a
// block that is equal to one that was decoded, and does nothing to the table, says the same again.
type heads struct {
	decoder  *hpack.Decoder
	known    []byte // such a block, empty without one
	tableOff bool   // the table was told to have no room: nothing is put there
}

const tableSize = 4 << 10 // the protocol's default, of which we say nothing else

// check accepts a whole header block with a 200 and the expected Content-Length.
func (h *heads) check(block []byte, bodySize int) error {
	if len(h.known) > 0 && bytes.Equal(block, h.known) {
		return nil
	}
	if h.decoder == nil {
		h.decoder = hpack.NewDecoder(tableSize, nil)
	}
	fields, err := h.decoder.DecodeFull(block)
	if err != nil {
		return fmt.Errorf("response head: %w", err)
	}
	status, length := "", ""
	for _, f := range fields {
		switch f.Name {
		case ":status":
			status = f.Value
		case "content-length":
			length = f.Value
		}
	}
	switch {
	case status != "200":
		return fmt.Errorf("answer with status %q", status)
	case length != strconv.Itoa(bodySize):
		return fmt.Errorf("content-length %q, want %d", length, bodySize)
	}
	h.known = h.known[:0]
	if !h.changesTable(block) {
		h.known = append(h.known, block...)
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
