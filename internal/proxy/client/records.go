package client

// records follows the TLS record framing (RFC 8446 section 5.1) of the bytes given to crypto/tls, to know without
// calling it when it has no more data: the call would cost locks and an error. It counts whole records that crypto/tls
// may not have used up, and never too few: that a record carries no data (an alert, a key update) it learns only when
// crypto/tls wants to read on. A partial record yields no data, so it does not count. The zero value is the beginning
// of a stream.
type records struct {
	whole int // complete records, perhaps not used up
	left  int // bytes left of the current record; 0 within its header
	size  int // length of the current record, as far as its header has arrived
	have  int // bytes of its header that have arrived
}

// recordHeader is the size of a record's header in bytes: type, version, length.
const recordHeader = 5

// feed accounts for bytes given to crypto/tls.
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

// took records that crypto/tls returned less data than there was room for. Since the last such read it has used up at
// least one record, and it keeps no part of its data.
func (r *records) took() {
	if r.whole > 0 {
		r.whole--
	}
}

// drained records that crypto/tls wanted to read on, so it has used up all whole records.
func (r *records) drained() { r.whole = 0 }

// usedUp reports that crypto/tls has no data until it is given more.
func (r *records) usedUp() bool { return r.whole == 0 }
