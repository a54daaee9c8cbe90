package http2

// updates finds the dynamic table size updates in a header block, which precede all fields (RFC 7541 section 4.2), and
// where fields end. The decoder of package hpack only checks that if the table is not empty, and then refuses the
// second of the two updates that are allowed there. The zero value is at the beginning of a block.
//
// This side leaves SETTINGS_HEADER_TABLE_SIZE at the default, so the peer is never required to send an update, and the
// decoder bounds the sizes that it may send.
type updates struct {
	state uint8  // what comes next
	named bool   // the value after the current string is still to come
	field bool   // a field has begun
	shift uint8  // shift of the next part of the current integer
	left  uint64 // the size by an update, the current length of a string, or the rest of the string in bytes
	whole int    // bytes up to the end of the last field or update in the last scan
}

const (
	atStart   = iota // a field or an update
	inUpdate         // the rest of an update's integer
	inIndexed        // the rest of an index that is a whole field
	inName           // the rest of an index that is a name
	atString         // the length of a string
	inLength         // the rest of the length
	inString         // the bytes of the string
)

// scan continues with b. ok is false if an update follows a field. Either an update ends at b[:n] and scan must be
// called with the rest, or n is len(b). Other errors are left to the decoder.
func (u *updates) scan(b []byte) (n int, ok bool) {
	u.whole = 0
	defer func() {
		if u.state == atStart {
			u.whole = n
		}
	}()
	for n < len(b) {
		x := b[n]
		n++
		switch u.state {
		case atStart:
			u.whole = n - 1
			var mask byte
			switch {
			case x&0x80 != 0:
				u.state, mask = inIndexed, 0x7f
			case x&0x40 != 0:
				u.state, mask = inName, 0x3f
			case x&0x20 != 0:
				if u.field {
					return n, false
				}
				if u.left, u.shift = uint64(x&0x1f), 0; u.left != 0x1f {
					return n, true
				}
				u.state = inUpdate
				continue
			default:
				u.state, mask = inName, 0x0f
			}
			u.field = true
			if x&mask == mask {
				continue
			}
			if u.state == inIndexed {
				u.state = atStart
			} else {
				u.state, u.named = atString, x&mask == 0
			}
		case inUpdate:
			if u.add(x); x&0x80 == 0 {
				u.state = atStart
				return n, true
			}
		case inIndexed, inName:
			if x&0x80 != 0 {
				continue
			}
			switch u.state {
			case inIndexed:
				u.state = atStart
			default:
				u.state = atString
			}
		case atString:
			if u.left = uint64(x & 0x7f); u.left == 0x7f {
				u.state, u.shift = inLength, 0
				continue
			}
			u.begin()
		case inLength:
			if u.add(x); x&0x80 == 0 {
				u.begin()
			}
		case inString:
			skip := min(u.left-1, uint64(len(b)-n))
			n += int(skip)
			u.left -= skip + 1
			u.endString()
		}
	}
	return n, true
}

// add adds the next byte of the current integer.
func (u *updates) add(x byte) {
	if u.shift < 56 { // a longer one is refused by the decoder
		u.left += uint64(x&0x7f) << u.shift
	}
	u.shift += 7
}

// begin is called after a string's length.
func (u *updates) begin() {
	u.state = inString
	u.endString()
}

// endString advances after the last byte of a string.
func (u *updates) endString() {
	if u.left > 0 {
		return
	}
	u.state = atStart
	if u.named {
		u.state, u.named = atString, false
	}
}
