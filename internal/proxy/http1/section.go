package http1

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// section is the state of one head concerning its connection and framing.
type section struct {
	sectionState
	nominated [][]byte // by Connection, at most maxNominated; the first nominations of them belong to this head
}

type sectionState struct {
	request      bool
	hasHost      bool
	chunked      bool
	close        bool
	keepAlive    bool
	upgrades     bool // Connection names Upgrade
	upgradeLines int
	nominations  int
	length       int64 // -1 without Content-Length
	host         []byte

	message.Consumed // of a response only Upgrade, while it is parsed
}

// knownLengths has a bit for each length of a name that known must examine.
const knownLengths = 1<<2 | 1<<4 | 1<<6 | 1<<7 | 1<<10 | 1<<14 | 1<<16 | 1<<17 | 1<<18 | 1<<19 | 1<<25

// parse reads field lines from p up to the empty line and returns its end.
func (s *section) parse(b []byte, p int, header *message.Fields, request bool, maxFields int) (int, error) {
	s.sectionState = sectionState{request: request, length: -1}
	header.Reset()
	for lines := 0; ; lines++ {
		if p >= len(b) {
			return 0, ErrIncomplete
		}
		if b[p] == '\r' {
			return s.finish(b, p, header)
		}
		if lines == maxFields {
			return 0, errFieldsMany
		}
		l, err := scanField(b, p)
		if err != nil {
			return 0, err
		}
		name, value := b[p:l.colon], b[l.value:l.end]
		consumed := false
		if n := uint(len(name)); n <= 25 && knownLengths>>n&1 != 0 {
			if consumed, err = s.known(name, value); err != nil {
				return 0, err
			}
		}
		if !consumed {
			// Line keeps the capacity of b, by which appendFields recognizes adjacent lines.
			f := header.Extend()
			f.Name, f.Value, f.Line = name, value, b[p:l.next]
		}
		p = l.next
	}
}

// finish ends the section at the empty line at p.
func (s *section) finish(b []byte, p int, header *message.Fields) (int, error) {
	if p+1 == len(b) {
		return 0, ErrIncomplete
	}
	if b[p+1] != '\n' {
		return 0, errBareCR
	}
	if s.nominations > 0 {
		s.DropNominated(header)
	}
	return p + 2, nil
}

// known processes a field that concerns only this connection, and reports whether it was one.
func (s *section) known(name, value []byte) (consumed bool, err error) {
	switch len(name) {
	case 2:
		if is(name, "te") {
			s.te(value)
			return true, nil
		}
	case 4:
		if s.request && is(name, "host") {
			if s.hasHost {
				return true, errHostTwice
			}
			s.hasHost, s.host = true, value
			return true, nil
		}
	case 6:
		if s.request && is(name, "expect") {
			return true, s.expect(value)
		}
	case 7:
		if is(name, "upgrade") {
			s.upgradeLines++
			s.Upgrade = value
			return true, nil
		}
	case 10:
		if is(name, "connection") {
			return true, s.connection(value)
		}
		return is(name, "keep-alive"), nil
	case 14:
		if is(name, "content-length") {
			return true, s.contentLength(value)
		}
		if cginame.Same(name, "content-length") {
			return true, errLookalike
		}
		return is(name, "http2-settings"), nil
	case 17:
		if is(name, "transfer-encoding") {
			return true, s.transferEncoding(value)
		}
		if cginame.Same(name, "transfer-encoding") {
			return true, errLookalike
		}
	case 16:
		return is(name, "proxy-connection"), nil
	case 18:
		return is(name, "proxy-authenticate"), nil
	case 19:
		return is(name, "proxy-authorization"), nil
	case 25:
		return is(name, "proxy-authentication-info"), nil
	}
	return false, nil
}

// contentLength processes a Content-Length (RFC 9110 section 8.6).
func (s *section) contentLength(value []byte) error {
	if s.length >= 0 {
		return errLengthTwice
	}
	if s.chunked {
		return errFraming
	}
	if len(value) == 0 || len(value) > 19 { // 2^63-1 has 19 digits
		return errLength
	}
	var n uint64
	for _, c := range value {
		if class[c]&isDigit == 0 {
			return errLength
		}
		n = n*10 + uint64(c-'0')
	}
	if n > 1<<63-1 {
		return errLength
	}
	if s.length = int64(n); s.request {
		s.Length = value
	}
	return nil
}

// transferEncoding processes a Transfer-Encoding (RFC 9112 section 6.1).
func (s *section) transferEncoding(value []byte) error {
	if s.chunked {
		return errCodingTwice
	}
	if !is(value, "chunked") {
		return refusedCoding(value)
	}
	if s.length >= 0 {
		return errFraming
	}
	s.chunked = true
	return nil
}

// refusedCoding distinguishes a valid list that is not implemented from an invalid one.
func refusedCoding(list []byte) error {
	for {
		var coding []byte
		more := bytes.IndexByte(list, ',') >= 0
		coding, list = member(list)
		final := is(coding, "chunked")
		switch {
		case !isTokenAll(coding) || final == more:
			return errCoding
		case final:
			return errCodingOther
		}
	}
}

// expect processes an Expect (RFC 9110 section 10.1.1).
func (s *section) expect(list []byte) error {
	for first := true; first || len(list) > 0; first = false {
		var expectation []byte
		expectation, list = member(list)
		if !is(expectation, "100-continue") {
			return errExpect
		}
	}
	s.ExpectContinue = true
	return nil
}

func (s *section) te(list []byte) {
	for len(list) > 0 {
		var coding []byte
		coding, list = member(list)
		if is(coding, "trailers") {
			s.TETrailers = true
		}
	}
}
