package client

// records follows the framing of TLS (RFC 8446 section 5.1) in what is handed to crypto/tls, to know
// without asking it when it has nothing more to give: asking costs locks and an error. It counts
// whole records that crypto/tls may not have used up, and never too few: of one that carries no data (an
// alert, a new key) it learns only when crypto/tls wants to read on. Part of a record gives
// nothing, so it does not count. The zero value is the beginning of a stream.
type records struct {
	whole int // at their end, and maybe not used up
	left  int // bytes that the present record still has; 0 within its header
	size  int // of the present record, as far as its header has come
	have  int // bytes of its header
}

// recordHeader is the size of a record's header in bytes: type, version, length.
const recordHeader = 5

// feed takes in what crypto/tls was given.
func (r *records) feed(b []byte) {
	for len(b) > 0 {
		if r.left == 0 {
			if r.have >= recordHeader-2 {
				r.size = r.size<<8 | int(b[0])
			}
			b = b[1:]
			if r.have++; r.have < recordHeader {
				continue
			}
			r.left, r.size, r.have = r.size, 0, 0
		}
		n := min(r.left, len(b))
		b = b[n:]
		if r.left -= n; r.left == 0 {
			r.whole++
		}
	}
}

// took notes that crypto/tls gave less data than there was room for: since it last did so it
// has used up a record at least, and it keeps no part of its data.
func (r *records) took() {
	if r.whole > 0 {
		r.whole--
	}
}

// drained notes that crypto/tls wanted to read on: it has used up all whole records.
func (r *records) drained() { r.whole = 0 }

// usedUp tells that crypto/tls has nothing to give before it is given more.
func (r *records) usedUp() bool { return r.whole == 0 }
