package http1

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// connection processes a Connection field (RFC 9110 section 7.6.1). Options that name fields which are always consumed
// need not be stored.
func (s *section) connection(list []byte) error {
	for len(list) > 0 {
		var option []byte
		option, list = member(list)
		switch {
		case len(option) == 0:
		case is(option, "keep-alive"):
			s.keepAlive = true
		case is(option, "close"):
			s.close = true
		case is(option, "upgrade"):
			s.upgrades = true
		case is(option, "te"), is(option, "http2-settings"), is(option, "proxy-connection"):
		case !isTokenAll(option):
			return errOption
		case isNeeded(option):
			return errOptionForbids
		case s.nominations == maxNominated:
			return errOptionsMany
		default:
			s.nominated = append(s.nominated[:s.nominations], option)
			s.nominations++
		}
	}
	return nil
}

// isNeeded reports whether a field of that name must reach the backend if it was sent, whatever Connection names.
func isNeeded(name []byte) bool {
	for _, prefix := range [...]string{"content-", "x-forwarded-"} {
		if len(name) >= len(prefix) && is(name[:len(prefix)], prefix) {
			return true
		}
	}
	switch len(name) {
	case 3:
		return is(name, "via")
	case 4:
		return is(name, "host")
	case 6:
		return is(name, "cookie")
	case 9:
		return is(name, "forwarded") || is(name, "x-real-ip")
	case 13:
		return is(name, "authorization")
	case 17:
		return is(name, "transfer-encoding")
	}
	return false
}

// KeepNominated copies the names that Connection nominated to dst, for DropNominated after the buffer of the head has
// been reused.
func (s *section) KeepNominated(dst []byte) []byte {
	for i, name := range s.nominated[:s.nominations] {
		start := len(dst)
		dst = append(dst, name...)
		s.nominated[i] = dst[start:len(dst):len(dst)]
	}
	return dst
}

// Forget drops the references to the buffer in which the head was parsed. It may be called after KeepNominated, or if
// no trailer section is to come. DropNominated may be called afterwards.
func (s *section) Forget() {
	s.host, s.Consumed = nil, message.Consumed{}
	if !s.chunked {
		s.nominations = 0
	}
	clear(s.nominated[s.nominations:])
}

// DropNominated removes the fields that Connection nominated. They are already missing from Header; the caller uses it
// for a trailer section.
func (s *section) DropNominated(f *message.Fields) {
	f.RemoveIf(func(fl *message.Field) bool {
		for _, name := range s.nominated[:s.nominations] {
			if message.EqualFoldBytes(fl.Name, name) {
				return true
			}
		}
		return false
	})
}

// persists reports whether the sender lets the connection persist (RFC 9112 section 9.3).
func (s *section) persists(minor uint8) bool {
	return !s.close && (minor == 1 || s.keepAlive)
}

// upgradeWanted returns the list of protocols of a response that asks for one of them (RFC 9110 section 15.5.22), nil
// if it is malformed.
func (s *section) upgradeWanted() []byte {
	if s.upgradeLines != 1 || len(s.Upgrade) == 0 {
		return nil
	}
	for list := s.Upgrade; len(list) > 0; {
		var protocol []byte
		protocol, list = member(list)
		name, version, versioned := bytes.Cut(protocol, []byte("/"))
		if !isTokenAll(name) || versioned && !isTokenAll(version) {
			return nil
		}
	}
	return s.Upgrade
}

// upgradeTo returns the protocol asked for or switched to, nil if there is none that is passed on. Another HTTP version
// or TLS on this connection would hide the requests from the gateway.
func (s *section) upgradeTo(minor uint8) []byte {
	if s.upgradeLines != 1 || !s.upgrades || minor == 0 || len(s.Upgrade) == 0 {
		return nil
	}
	for list := s.Upgrade; len(list) > 0; {
		var protocol []byte
		protocol, list = member(list)
		if i := bytes.IndexByte(protocol, '/'); i >= 0 {
			protocol = protocol[:i]
		}
		if !isTokenAll(protocol) || is(protocol, "h2c") || is(protocol, "h2") ||
			is(protocol, "http") || is(protocol, "tls") {
			return nil
		}
	}
	return s.Upgrade
}
