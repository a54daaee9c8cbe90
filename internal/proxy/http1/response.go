package http1

import "github.com/moongate-dev/moongate/internal/proxy/message"

// ParseResponse parses the response head at the beginning of buf, the answer to a request with that method, and returns
// its length. See ParseRequest. A 1xx head other than 101 is followed by another head.
func ParseResponse(buf, method []byte, resp *message.Response, head *ResponseHead, lim *Limits) (n int, err error) {
	limit := lim.head()
	b := buf[:min(len(buf), limit)]
	resp.Reset()
	head.reset()
	n, err = head.statusLine(b, resp)
	if err == nil {
		n, err = head.section.parse(b, n, &resp.Header, false, lim.fields())
	}
	if err == nil {
		err = head.settle(method, resp.Status)
	}
	if err == ErrIncomplete && len(buf) >= limit {
		err = errHeadLong
	}
	if err == nil {
		return n, nil
	}
	if e, ok := err.(*Error); ok {
		return 0, e.Upstream()
	}
	return 0, err
}

func (h *ResponseHead) reset() {
	h.Minor, h.Framing, h.ContentLength, h.KeepAlive, h.Upgrade = 0, NoBody, -1, false, nil
	h.sectionState = sectionState{}
}

// statusLine parses the status line (RFC 9112 section 4) and returns its end.
func (h *ResponseHead) statusLine(b []byte, resp *message.Response) (int, error) {
	minor, i, err := version(b)
	if err != nil {
		return 0, err
	}
	h.Minor = minor
	status := 0
	for k := range 4 { // SP and three digits
		switch {
		case i == len(b):
			return 0, ErrIncomplete
		case k == 0 && b[i] == ' ':
		case k > 0 && class[b[i]]&isDigit != 0 && (k > 1 || b[i] != '0'):
			status = status*10 + int(b[i]-'0')
		default:
			return 0, errStatusLine
		}
		i++
	}
	start := i
	if i < len(b) && b[i] == ' ' {
		start = i + 1
		i = valueEnd(b, start)
	}
	if i+1 >= len(b) || b[i] != '\r' || b[i+1] != '\n' {
		if err = badValue(b, i); err != ErrIncomplete {
			err = errStatusLine
		}
		return 0, err
	}
	resp.Status, resp.Reason = status, b[start:i]
	return i + 2, nil
}

// settle evaluates the complete head (RFC 9112 section 6.3).
func (h *ResponseHead) settle(method []byte, status int) error {
	if h.chunked && h.Minor == 0 {
		return errCodingVersion
	}
	h.KeepAlive = h.persists(h.Minor)
	switch {
	case status < 200 || status == 204:
		if h.chunked {
			return errCodingStatus
		}
		if h.length > 0 {
			return errLengthStatus
		}
		if status == 101 {
			h.Upgrade = h.upgradeTo(h.Minor)
			if h.Upgrade == nil {
				return errUpgradeMissing
			}
		}
		return nil
	case status < 300 && string(method) == "CONNECT": // a tunnel follows, whatever the fields are (RFC 9112 section 6.3)
		h.KeepAlive = false
		return nil
	case status == 304 || string(method) == "HEAD":
	case h.chunked:
		h.Framing = Chunked
	case h.length >= 0:
		h.Framing = Length
	default:
		h.Framing = UntilClose
		h.KeepAlive = false
	}
	h.ContentLength = h.length
	if status == 426 {
		h.Upgrade = h.upgradeWanted()
	}
	return nil
}
