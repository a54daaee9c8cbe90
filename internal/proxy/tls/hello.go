package tls

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxHello is the largest number of bytes of a connection until its ClientHello is complete, including the headers of
// its records: many times what post-quantum key shares need.
const MaxHello = 64 << 10

// Sizes in bytes (RFC 8446 sections 4 and 5.1).
const (
	recordHeader    = 5
	handshakeHeader = 4
	maxPlaintext    = 1 << 14
)

// What a connection begins with that is to be passed on (RFC 8446 sections 4, 5.1 and 4.2; RFC 6066 section 3).
const (
	recordHandshake      = 22
	handshakeClientHello = 1
	extensionServerName  = 0
	nameTypeHostName     = 0
)

// maxName is the longest host name in bytes (RFC 1035 section 2.3.4).
const maxName = 255

// Errors of Hello.
var (
	// ErrNotHello means that the connection does not begin with a valid ClientHello.
	ErrNotHello = errors.New("no ClientHello")
	// ErrHelloTooLarge means that the ClientHello needs more than MaxHello bytes.
	ErrHelloTooLarge = fmt.Errorf("the ClientHello is not complete after %d bytes", MaxHello)
)

// Hello parses the ClientHello with which a connection begins, in however many records and parts it arrives. It returns
// the server name, and leaves everything else to whatever answers it. The zero value is the beginning of a connection.
type Hello struct {
	records int // bytes of whole records, including headers
	have    int // bytes of the handshake message in them
	first   int // of these, in the first one
	header  [handshakeHeader]byte
}

// Complete reports whether b, all bytes of the connection so far, contains the whole ClientHello. It parses each record
// once, so that it may be called whenever bytes have arrived.
func (h *Hello) Complete(b []byte) (bool, error) {
	for {
		rest := b[h.records:]
		if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] >= 0x10 { // the version has no meaning (RFC 8446 section 5.1)
			return false, ErrNotHello
		}
		if len(rest) < recordHeader {
			break
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if n == 0 || n > maxPlaintext {
			return false, ErrNotHello
		}
		if len(rest) < recordHeader+n {
			break
		}
		done, err := h.take(rest[recordHeader : recordHeader+n])
		if done || err != nil {
			return done, err
		}
	}
	if len(b) >= MaxHello {
		return false, ErrHelloTooLarge
	}
	return false, nil
}

// take adds the content of a record.
func (h *Hello) take(content []byte) (done bool, err error) {
	if h.have < handshakeHeader {
		copy(h.header[h.have:], content)
	}
	if h.have == 0 {
		h.first = len(content)
	}
	h.have += len(content)
	h.records += recordHeader + len(content)
	switch {
	case h.header[0] != handshakeClientHello:
		return false, ErrNotHello
	case h.records > MaxHello, h.have >= handshakeHeader && h.size() > MaxHello:
		return false, ErrHelloTooLarge
	}
	return h.have >= handshakeHeader && h.have >= h.size(), nil
}

// size returns the size of the handshake message, whose header must be available.
func (h *Hello) size() int {
	return handshakeHeader + int(h.header[1])<<16 + int(h.header[2])<<8 + int(h.header[3])
}

// ServerName returns the name in a complete ClientHello as it was sent, "" if there is none. It points into b, unless
// the ClientHello consists of several records.
func (h *Hello) ServerName(b []byte) ([]byte, error) {
	message := b[recordHeader : recordHeader+h.first]
	if h.first < h.size() {
		message = h.join(b)
	}
	name, ok := serverName(message[handshakeHeader:h.size()])
	if !ok {
		return nil, ErrNotHello
	}
	return name, nil
}

// join returns the joined contents of the records.
func (h *Hello) join(b []byte) []byte {
	message := make([]byte, 0, h.have)
	for len(message) < h.have {
		n := int(binary.BigEndian.Uint16(b[3:]))
		message = append(message, b[recordHeader:recordHeader+n]...)
		b = b[recordHeader+n:]
	}
	return message
}

// serverName parses a ClientHello (RFC 8446 section 4.1.2) up to the name. Like crypto/tls it refuses a name that
// occurs twice or ends in a dot: what two parsers may understand differently must not decide the route. It also refuses
// a name that is too long for a host, since the name is stored.
func serverName(hello []byte) (name []byte, ok bool) {
	f := fields{rest: hello}
	f.skip(2 + 32) // legacy_version, random
	f.vector(1)    // legacy_session_id
	f.vector(2)    // cipher_suites
	f.vector(1)    // legacy_compression_methods
	if f.bad {
		return nil, false
	}
	if len(f.rest) == 0 { // no extensions
		return nil, true
	}
	extensions := fields{rest: f.vector(2)}
	if f.bad || len(f.rest) > 0 {
		return nil, false
	}
	seen := false
	for len(extensions.rest) > 0 {
		kind, content := extensions.number(2), extensions.vector(2)
		if extensions.bad {
			return nil, false
		}
		if kind != extensionServerName {
			continue
		}
		if name, ok = requestedName(content); !ok || seen {
			return nil, false
		}
		seen = true
	}
	return name, true
}

// requestedName parses a server_name extension (RFC 6066 section 3).
func requestedName(content []byte) (name []byte, ok bool) {
	f := fields{rest: content}
	list := fields{rest: f.vector(2)}
	if f.bad || len(f.rest) > 0 || len(list.rest) == 0 {
		return nil, false
	}
	for len(list.rest) > 0 {
		kind, n := list.number(1), list.vector(2)
		if list.bad || len(n) == 0 {
			return nil, false
		}
		if kind != nameTypeHostName {
			continue
		}
		if name != nil || len(n) > maxName || bytes.HasSuffix(n, []byte(".")) {
			return nil, false
		}
		name = n
	}
	return name, true
}

// fields parses the parts of a message one after the other.
type fields struct {
	rest []byte
	bad  bool // a part was incomplete
}

// skip returns the next n bytes.
func (f *fields) skip(n int) []byte {
	if f.bad || len(f.rest) < n {
		f.bad, f.rest = true, nil
		return nil
	}
	part := f.rest[:n]
	f.rest = f.rest[n:]
	return part
}

// number parses a number of size bytes.
func (f *fields) number(size int) (n int) {
	for _, b := range f.skip(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector parses a vector whose length precedes it in size bytes.
func (f *fields) vector(size int) []byte { return f.skip(f.number(size)) }
