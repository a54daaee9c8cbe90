package observe

import (
	"encoding/binary"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

const (
	maxLabel = 512

	// Length of a line without its values: keys, numbers, times, addresses.
	maxFixed = 1024
	// The longest escape of one byte is \u00XX.
	maxEscape = 6
	// Maximum length of a default line.
	maxLine = maxFixed + maxEscape*(accesslog.MaxMethod+accesslog.MaxHost+accesslog.MaxTarget+accesslog.MaxUserAgent+accesslog.MaxRequestID+accesslog.MaxCause+5*maxLabel)
	// Maximum length of any line.
	maxLaidOut = maxLine + accesslog.MaxHeaders*(maxEscape*accesslog.MaxHeader+accesslog.MaxHeaderName+32) + accesslog.MaxFormat + accesslog.MaxMembers*8
)

// lineBound returns an upper bound of the length of the record's line.
func lineBound(r *Record) int {
	n := min(len(r.Method), accesslog.MaxMethod) + min(len(r.Host), accesslog.MaxHost) + min(len(r.Target), accesslog.MaxTarget) +
		min(len(r.UserAgent), accesslog.MaxUserAgent) + min(len(r.RequestID), accesslog.MaxRequestID) + min(len(r.Cause), accesslog.MaxCause)
	return maxFixed + maxEscape*n + r.Stats.logBound()
}

// appendLine appends the record as one line of JSON.
func appendLine(b []byte, r *Record, clock *secondCache) []byte {
	b = append(b, `{"start_time":"`...)
	b = clock.append(b, r.StartUnixNano)
	b = append(b, `","method":`...)
	b = appendText(b, r.Method, accesslog.MaxMethod)
	b = append(b, `,"scheme":`...)
	b = appendWord(b, r.Scheme)
	b = append(b, `,"authority":`...)
	b = appendText(b, r.Host, accesslog.MaxHost)
	b = append(b, `,"path":`...)
	b = appendText(b, r.Target, accesslog.MaxTarget)
	b = append(b, `,"protocol":`...)
	b = appendWord(b, r.Protocol)
	b = append(b, `,"response_code":`...)
	b = strconv.AppendInt(b, int64(r.Status), 10)
	b = append(b, `,"reason":"`...)
	b = append(b, r.Reason.String()...)
	b = append(b, `","bytes_received":`...)
	b = strconv.AppendInt(b, r.BytesReceived, 10)
	b = append(b, `,"bytes_sent":`...)
	b = strconv.AppendInt(b, r.BytesSent, 10)
	b = append(b, `,"duration_ms":`...)
	b = appendMillis(b, r.DurationNano)
	b = append(b, `,"client_address":`...)
	if r.ClientAddr.IsValid() {
		b = append(b, '"')
		if r.ClientAddr.Port() != 0 {
			b = r.ClientAddr.AppendTo(b)
		} else {
			b = r.ClientAddr.Addr().AppendTo(b)
		}
		b = append(b, '"')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"user_agent":`...)
	b = appendText(b, r.UserAgent, accesslog.MaxUserAgent)
	b = append(b, `,"request_id":`...)
	b = appendText(b, r.RequestID, accesslog.MaxRequestID)
	b = r.Stats.appendLabels(b, int(r.Backend))
	return appendUpstream(b, r)
}

func appendUpstream(b []byte, r *Record) []byte {
	if r.Upstream.IsValid() {
		b = append(b, `,"upstream_host":"`...)
		b = r.Upstream.AppendTo(b)
		b = append(b, `","upstream_duration_ms":`...)
		b = appendMillis(b, r.UpstreamDurationNano)
	} else {
		b = append(b, `,"upstream_host":null,"upstream_duration_ms":null`...)
	}
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(r.Attempts), 10)
	if r.InjectedDelayMillis > 0 {
		b = append(b, `,"injected_delay_ms":`...)
		b = strconv.AppendUint(b, uint64(r.InjectedDelayMillis), 10)
	}
	if r.OverriddenStatus != 0 {
		b = append(b, `,"overridden_response_code":`...)
		b = strconv.AppendUint(b, uint64(r.OverriddenStatus), 10)
	}
	if r.Span != nil {
		b = append(b, `,"trace_id":"`...)
		b = append(b, r.Span.Trace[:]...)
		b = append(b, `","span_id":"`...)
		b = append(append(b, r.Span.Span[:]...), '"')
	}
	if r.Session != SessionNone {
		b = append(b, `,"session":`...)
		b = appendWord(b, r.Session.String())
	}
	if r.ContentEncoding != ContentEncodingNone {
		b = append(b, `,"content_encoding":`...)
		b = appendWord(b, r.ContentEncoding.String())
	}
	if r.Cause != "" {
		b = append(b, `,"port":`...)
		b = strconv.AppendUint(b, uint64(r.Port), 10)
		b = append(b, `,"cause":`...)
		b = appendText(b, []byte(r.Cause), accesslog.MaxCause)
	}
	return append(b, '}', '\n')
}

// appendMillis appends nanoseconds as milliseconds with three decimals.
func appendMillis(b []byte, nanos int64) []byte {
	micros := max(nanos, 0) / 1000
	b = strconv.AppendInt(b, micros/1000, 10)
	f := micros % 1000
	return append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
}

// secondCache caches the printed form of the last second, which is usually needed again.
type secondCache struct {
	second int64
	text   [20]byte // "2006-01-02T15:04:05."
}

func (c *secondCache) append(b []byte, unixNano int64) []byte {
	second, nanos := unixNano/1e9, unixNano%1e9
	if nanos < 0 {
		second, nanos = second-1, nanos+1e9
	}
	if second != c.second || c.text[0] == 0 {
		time.Unix(second, 0).UTC().AppendFormat(c.text[:0], "2006-01-02T15:04:05.")
		c.second = second
	}
	b = append(b, c.text[:]...)
	ms := nanos / 1e6
	return append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// appendWord appends a word that needs no escaping; "" becomes null.
func appendWord(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = append(b, s[:min(len(s), accesslog.MaxMethod)]...)
	return append(b, '"')
}

// appendText appends at most limit bytes of s as a JSON string; nil becomes null.
func appendText(b, s []byte, limit int) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	if len(s) > limit {
		s = cut(s, limit)
	}
	b = append(b, '"')
	n := plainPrefix(s)
	b = append(b, s[:n]...)
	if n < len(s) {
		b = appendEscaped(b, s[n:])
	}
	return append(b, '"')
}

// cut shortens s to at most limit bytes without splitting a valid character.
func cut(s []byte, limit int) []byte {
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	if !utf8.RuneStart(s[end]) {
		end = limit // not a valid character, so there is nothing to keep whole
	}
	return s[:end]
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainPrefix returns the length of the prefix of s that needs no escaping in JSON, at least up to the last multiple of eight bytes
// before the first byte that does.
func plainPrefix(s []byte) int {
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(s[n:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// Bytes from 0x7f on, then below 0x20, then '"', then '\\'.
		odd := x | (x + ones) | (x - ones*0x20) | (quote - ones) | (slash - ones)
		if odd&highs != 0 {
			break
		}
	}
	for n < len(s) && isPlain(s[n]) {
		n++
	}
	return n
}

func isPlain(c byte) bool { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' }

const hexDigits = "0123456789abcdef"

// appendEscaped appends s for a JSON string. Control characters, including those from U+0080 to U+009F, and those that isLayout
// reports are escaped, so that a line can safely be shown on a terminal.
func appendEscaped(b, s []byte) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case isPlain(c):
			b = append(b, c)
			i++
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < utf8.RuneSelf:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			i++
		default:
			r, n := utf8.DecodeRune(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				b = append(b, `\ufffd`...)
			case r < 0xa0 || isLayout(r):
				b = append(b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			default:
				b = append(b, s[i:i+n]...)
			}
			i += n
		}
	}
	return b
}

// isLayout reports whether some readers end a line at a character, or whether it changes the direction in which the rest of the line
// is shown.
func isLayout(r rune) bool {
	return r == 0x61c || r >= 0x200e && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}
