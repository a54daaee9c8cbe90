package cors

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// origin is an allowed origin, or a set of origins that differ in the beginning of the host.
type origin struct {
	https bool
	// host is the whole host, or with wildcard its end, "" for any host.
	host     string
	wildcard bool
	port     uint16
}

// parsePattern parses an entry of allow_origins other than "*".
func parsePattern(text string) (origin, bool) {
	https, host, port, ok := parseOrigin([]byte(text))
	o := origin{https: https, host: string(host), port: port}
	if suffix, found := strings.CutPrefix(o.host, "*"); found {
		o.wildcard, o.host = true, suffix
		ok = ok && (suffix == "" || len(suffix) > 1 && suffix[0] == '.')
	}
	return o, ok && !strings.Contains(o.host, "*")
}

// allows reports whether from, the value of Origin, is allowed by the policy. from is empty if there is no Origin.
// "null" is the Origin of documents that have none.
func (p *policy) allows(from []byte) bool {
	if len(from) == 0 || p.anyOrigin {
		return len(from) > 0
	}
	https, host, port, ok := parseOrigin(from)
	if !ok {
		return false
	}
	for i := range p.origins {
		if o := &p.origins[i]; o.https == https && o.port == port && o.fits(host) {
			return true
		}
	}
	return false
}

func (o *origin) fits(host []byte) bool {
	if !o.wildcard {
		return message.EqualFold(host, o.host)
	}
	n := len(host) - len(o.host)
	return n > 0 && message.EqualFold(host[n:], o.host)
}

// parseOrigin parses an origin (RFC 6454 section 6.2). A missing port is the default of the scheme.
func parseOrigin(text []byte) (https bool, host []byte, port uint16, ok bool) {
	scheme, rest, found := bytes.Cut(text, []byte("://"))
	switch {
	case !found:
		return false, nil, 0, false
	case message.EqualFold(scheme, "https"):
		https, port = true, 443
	case message.EqualFold(scheme, "http"):
		port = 80
	default:
		return false, nil, 0, false
	}
	host = rest
	if colon := bytes.LastIndexByte(rest, ':'); colon > bytes.LastIndexByte(rest, ']') {
		n, err := strconv.ParseUint(string(rest[colon+1:]), 10, 16)
		if err != nil || n == 0 {
			return false, nil, 0, false
		}
		host, port = rest[:colon], uint16(n)
	}
	return https, host, port, len(host) > 0 && !bytes.ContainsAny(host, "/?#@\\, \t\"")
}
