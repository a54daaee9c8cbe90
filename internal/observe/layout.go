package observe

import (
	"bytes"
	"net/netip"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

// headerBytes returns the total length of the values of headers.
func headerBytes(r *Record) (n int) {
	if r.Headers == nil {
		return 0
	}
	for _, v := range *r.Headers {
		n += min(len(v), accesslog.MaxHeader)
	}
	return n
}

// appendLaidOut is appendLine for lines with a layout.
func appendLaidOut(b []byte, r *Record, y *accesslog.Layout, clock *secondCache) []byte {
	if y.Text {
		for i := range y.Parts {
			p := &y.Parts[i]
			b = append(b, p.Literal...)
			start := len(b)
			b = unquote(appendMember(b, r, y, p, clock), start)
		}
		return append(append(b, y.Tail...), '\n')
	}
	b = append(b, '{')
	comma := false
	for i := range y.Parts {
		p := &y.Parts[i]
		if isSilent(r, p.Member) {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		comma = true
		b = append(b, p.Literal...)
		b = appendMember(b, r, y, p, clock)
	}
	return append(b, '}', '\n')
}

// unquote converts the JSON value at b[start:] to the form for text lines: without quotes, and - instead of null. Escapes are kept,
// so that no value ends a quoted string or the line.
func unquote(b []byte, start int) []byte {
	v := b[start:]
	if string(v) == "null" || string(v) == `""` {
		return append(b[:start], '-')
	}
	if v[0] == '"' {
		copy(v, v[1:len(v)-1])
		return b[:len(b)-2]
	}
	return b
}

// isSilent reports whether an optional member has no value and is left out of JSON.
func isSilent(r *Record, m accesslog.Member) bool {
	switch m {
	case accesslog.InjectedDelay:
		return r.InjectedDelayMillis == 0
	case accesslog.OverriddenResponseCode:
		return r.OverriddenStatus == 0
	case accesslog.TraceID, accesslog.SpanID:
		return r.Span == nil
	case accesslog.Session:
		return r.Session == SessionNone
	case accesslog.ContentEncoding:
		return r.ContentEncoding == ContentEncodingNone
	case accesslog.Port, accesslog.Cause:
		return r.Cause == ""
	}
	return false
}

// appendMember appends the value of a member as JSON.
func appendMember(b []byte, r *Record, y *accesslog.Layout, p *accesslog.Part, clock *secondCache) []byte {
	switch p.Member {
	case accesslog.StartTime:
		return append(clock.append(append(b, '"'), r.StartUnixNano), '"')
	case accesslog.CommonTime:
		return time.Unix(0, r.StartUnixNano).UTC().AppendFormat(b, `"02/Jan/2006:15:04:05 +0000"`)
	case accesslog.Method:
		return appendText(b, r.Method, accesslog.MaxMethod)
	case accesslog.Scheme:
		return appendWord(b, r.Scheme)
	case accesslog.Authority:
		return appendText(b, r.Host, accesslog.MaxHost)
	case accesslog.Path:
		if y.Redacts() {
			return appendRedacted(b, r.Target, accesslog.MaxTarget, y)
		}
		return appendText(b, r.Target, accesslog.MaxTarget)
	case accesslog.Protocol:
		return appendWord(b, r.Protocol)
	case accesslog.ResponseCode:
		return strconv.AppendInt(b, int64(r.Status), 10)
	case accesslog.Reason:
		return appendWord(b, r.Reason.String())
	case accesslog.BytesReceived:
		return strconv.AppendInt(b, r.BytesReceived, 10)
	case accesslog.BytesSent:
		return strconv.AppendInt(b, r.BytesSent, 10)
	case accesslog.Duration:
		return appendMillis(b, r.DurationNano)
	case accesslog.ClientAddress:
		return appendAddress(b, r.ClientAddr)
	case accesslog.ClientIP:
		return appendAddress(b, netip.AddrPortFrom(r.ClientAddr.Addr(), 0))
	case accesslog.UserAgent:
		return appendText(b, r.UserAgent, accesslog.MaxUserAgent)
	case accesslog.RequestID:
		return appendText(b, r.RequestID, accesslog.MaxRequestID)
	case accesslog.Gateway, accesslog.Listener, accesslog.Route, accesslog.Rule, accesslog.Backend:
		return r.Stats.appendName(b, p.Member, int(r.Backend))
	case accesslog.UpstreamHost:
		return appendAddress(b, r.Upstream)
	case accesslog.UpstreamDuration:
		if !r.Upstream.IsValid() {
			return append(b, "null"...)
		}
		return appendMillis(b, r.UpstreamDurationNano)
	case accesslog.Attempts:
		return strconv.AppendInt(b, int64(r.Attempts), 10)
	case accesslog.RequestHeader, accesslog.ResponseHeader:
		if p.URL && y.Redacts() {
			return appendRedacted(b, r.header(p.Header), accesslog.MaxHeader, y)
		}
		return appendText(b, r.header(p.Header), accesslog.MaxHeader)
	}
	if isSilent(r, p.Member) {
		return append(b, "null"...)
	}
	return appendOptional(b, r, p.Member)
}

// appendOptional is appendMember for optional members.
func appendOptional(b []byte, r *Record, m accesslog.Member) []byte {
	switch m {
	case accesslog.InjectedDelay:
		return strconv.AppendUint(b, uint64(r.InjectedDelayMillis), 10)
	case accesslog.OverriddenResponseCode:
		return strconv.AppendUint(b, uint64(r.OverriddenStatus), 10)
	case accesslog.TraceID:
		return append(append(append(b, '"'), r.Span.Trace[:]...), '"')
	case accesslog.SpanID:
		return append(append(append(b, '"'), r.Span.Span[:]...), '"')
	case accesslog.Session:
		return appendWord(b, r.Session.String())
	case accesslog.ContentEncoding:
		return appendWord(b, r.ContentEncoding.String())
	case accesslog.Port:
		return strconv.AppendUint(b, uint64(r.Port), 10)
	case accesslog.Cause:
		return appendText(b, []byte(r.Cause), accesslog.MaxCause)
	}
	return append(b, "null"...)
}

// appendAddress appends an address as JSON, without its port if that is 0.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	switch {
	case !a.IsValid():
		return append(b, "null"...)
	case a.Port() == 0:
		return append(a.Addr().AppendTo(append(b, '"')), '"')
	}
	return append(a.AppendTo(append(b, '"')), '"')
}

// appendName appends one of the names by which a record is counted.
func (s *RuleStats) appendName(b []byte, m accesslog.Member, backend int) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	l := &s.labels
	switch m {
	case accesslog.Gateway:
		return s.appendLabel(b, l.Gateway)
	case accesslog.Listener:
		return s.appendLabel(b, l.Listener)
	case accesslog.Route:
		return s.appendLabel(b, l.Route)
	case accesslog.Rule:
		return s.appendLabel(b, l.Rule)
	}
	if backend < 1 || backend > len(l.Backends) {
		return append(b, "null"...)
	}
	return s.appendLabel(b, l.Backends[backend-1])
}

// appendRedacted is appendText for a target or URL: the value of each redacted parameter is replaced by *, in the query and in the
// fragment, where OAuth puts tokens. Backends differ in what separates parameters. A name may begin after any separator of any
// backend, and a redacted value ends at a separator of all backends.
func appendRedacted(b, s []byte, limit int, y *accesslog.Layout) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	if len(s) > limit {
		s = cut(s, limit)
	}
	b = append(b, '"')
	at := bytes.IndexAny(s, "?#")
	for at >= 0 {
		b = appendEscaped(b, s[:at+1])
		s = s[at+1:]
		at = bytes.IndexAny(s, "?&;#")
		parameter := s
		if at >= 0 {
			parameter = s[:at]
		}
		equals := bytes.IndexByte(parameter, '=')
		switch {
		case equals < 0 && y.RedactAll && len(parameter) > 0, equals >= 0 && redacts(y, parameter[:equals]):
			b = appendEscaped(b, parameter[:equals+1])
			value := s[equals+1:]
			if at = bytes.IndexAny(value, "&#"); at >= 0 {
				value = value[:at]
			}
			if len(value) > 0 {
				b = append(b, '*')
			}
			s = s[equals+1+len(value):]
		default:
			b = appendEscaped(b, parameter)
			s = s[len(parameter):]
		}
		if at >= 0 {
			at = 0 // the separator
		}
	}
	b = appendEscaped(b, s)
	return append(b, '"')
}

// redacts reports whether the value of a parameter is redacted; name is as it is encoded in a query.
func redacts(y *accesslog.Layout, name []byte) bool {
	if y.RedactAll {
		return true
	}
	for _, r := range y.Redact {
		if isParameter(name, r) {
			return true
		}
	}
	return false
}

// isParameter compares an encoded name in a query with a name. It ignores case, because some backends do.
func isParameter(encoded []byte, name string) bool {
	n := 0
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(encoded) && isHex(encoded[i+1]) && isHex(encoded[i+2]):
			c = hexValue(encoded[i+1])<<4 | hexValue(encoded[i+2])
			i += 2
		}
		if n == len(name) || lower(c) != lower(name[n]) {
			return false
		}
		n++
	}
	return n == len(name)
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || lower(c) >= 'a' && lower(c) <= 'f'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return lower(c) - 'a' + 10
}
