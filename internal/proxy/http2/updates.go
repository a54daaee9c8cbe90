package http2

// updates finds the updates of the table's size in a header block, which stand before all fields (RFC 7541 section 4.2), and where fields end.
// The decoder of package hpack looks for that only where the table holds something, and then refuses the second of the
// two that may stand there. The zero value is at the beginning of a block.
//
// We leave SETTINGS_HEADER_TABLE_SIZE at the default, so an update is never required of the peer, and what it may say
// is bounded by the decoder.
type updates struct {
	state uint8  // what comes next
	named bool   // the value behind the present string is still to come
	field bool   // a field has begun
	shift uint8  // of the next piece of the present integer
	left  uint64 // the present integer, or bytes of the present string
	whole int    // bytes that the last scan has gone on by, to the end of the last field or update among them
}

const (
	atStart   = iota // a field or an update
	inUpdate         // the rest of an update's integer
	inIndexed        // the rest of an index that is a whole field
	inName           // the rest of an index that is a name
	atString         // the length of a string
	inLength         // the rest of it
	inString         // its bytes
)

// scan goes on with b. ok is false where an update stands behind a field. An update ends at b[:n], with more to come for scan, or
// nothing is left and n is len(b). What is malformed otherwise is the decoder's to find.
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
				if x&0x1f != 0x1f {
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
		case inUpdate, inIndexed, inName:
			if x&0x80 != 0 {
				continue
			}
			switch u.state {
			case inUpdate:
				u.state = atStart
				return n, true
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
			if u.shift < 56 { // beyond that it is too long for the decoder
				u.left += uint64(x&0x7f) << u.shift
			}
			u.shift += 7
			if x&0x80 == 0 {
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

// begin follows a string's length.
func (u *updates) begin() {
	u.state = inString
	u.endString()
}

// endString goes on behind a string where no byte of it is left.
func (u *updates) endString() {
	if u.left > 0 {
		return
	}
	u.state = atStart
	if u.named {
		u.state, u.named = atString, false
	}
}
