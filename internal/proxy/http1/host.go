package http1

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// matchHost checks uri-host [":" port] (RFC 9110 section 7.2) and returns the name that routing uses: lower case, no
// port, no trailing dot, an IPv6 address in brackets. port is nil if there is no colon.
func (h *RequestHead) matchHost(host []byte) (match, port []byte, err error) {
	if len(host) == 0 {
		return nil, nil, errHost
	}
	if host[0] == '[' {
		return h.matchLiteral(host)
	}
	upper, dot := false, true // dot: the previous byte is a dot, or there is none
	i := 0
	for ; i < len(host); i++ {
		c := host[i]
		if class[c]&isHost != 0 {
			upper = upper || 'A' <= c && c <= 'Z'
			dot = false
		} else if c == '.' && !dot {
			dot = true
		} else {
			break
		}
	}
	match = host[:i]
	if i == 0 || i > maxHost {
		return nil, nil, errHost
	}
	if i < len(host) {
		if port, err = portOf(host[i:]); err != nil {
			return nil, nil, err
		}
	}
	if dot {
		match = match[:i-1]
	}
	if upper {
		match = h.lower(match)
	}
	return match, port, nil
}

func (h *RequestHead) matchLiteral(host []byte) (match, port []byte, err error) {
	i := bytes.IndexByte(host, ']')
	if i < 0 || !isIPv6(host[1:i]) {
		return nil, nil, errHost
	}
	if i+1 < len(host) {
		if port, err = portOf(host[i+1:]); err != nil {
			return nil, nil, err
		}
	}
	return h.lower(host[:i+1]), port, nil
}

func (h *RequestHead) lower(b []byte) []byte {
	start := len(h.scratch)
	h.scratch = message.AppendLower(h.scratch, b)
	return h.scratch[start:]
}

// portOf checks what follows the host: ":" and a port, which may be empty.
func portOf(b []byte) ([]byte, error) {
	port := b[1:]
	if b[0] != ':' || len(port) > 5 {
		return nil, errHost
	}
	n := 0
	for _, c := range port {
		if class[c]&isDigit == 0 {
			return nil, errHost
		}
		n = n*10 + int(c-'0')
	}
	if n > 65535 {
		return nil, errHost
	}
	return port, nil
}

// isIPv6 checks an IPv6 address without zone, RFC 3986 section 3.2.2.
func isIPv6(b []byte) bool {
	groups, gap := 0, false
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		gap, b = true, b[2:]
	}
	for len(b) > 0 {
		n := 0
		for n < len(b) && class[b[n]]&isHex != 0 {
			n++
		}
		if n < len(b) && b[n] == '.' {
			if !isIPv4(b) {
				return false
			}
			groups += 2
			break
		}
		if n == 0 || n > 4 {
			return false
		}
		groups++
		b = b[n:]
		switch {
		case len(b) == 0:
		case b[0] != ':' || len(b) == 1:
			return false
		case b[1] != ':':
			b = b[1:]
		case gap:
			return false
		default:
			gap, b = true, b[2:]
		}
	}
	return groups <= 8 && gap == (groups < 8)
}

func isIPv4(b []byte) bool {
	for part := range 4 {
		n, v := 0, 0
		for n < len(b) && n < 4 && class[b[n]]&isDigit != 0 {
			v = v*10 + int(b[n]-'0')
			n++
		}
		if n == 0 || n > 3 || v > 255 || n > 1 && b[0] == '0' {
			return false
		}
		if b = b[n:]; part == 3 {
			break
		}
		if len(b) == 0 || b[0] != '.' {
			return false
		}
		b = b[1:]
	}
	return len(b) == 0
}
