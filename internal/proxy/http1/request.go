package http1

import "github.com/moongate-dev/moongate/internal/proxy/message"

// ParseRequest parses the request head at the beginning of buf and returns its length, including that of an empty line
// before it. It resets and fills req and head, which both point into buf. It returns ErrIncomplete, or an *Error after
// which the connection must be closed.
func ParseRequest(buf []byte, req *message.Request, head *RequestHead, lim *Limits) (n int, err error) {
	limit := lim.head()
	b := buf[:min(len(buf), limit)]
	req.Reset()
	head.reset()
	n, err = head.requestLine(b, req, lim.target())
	if err == nil {
		n, err = head.section.parse(b, n, &req.Header, true, lim.fields())
	}
	if err == nil {
		err = head.settle(req)
	}
	if err == ErrIncomplete && len(buf) >= limit {
		err = errHeadLong
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (h *RequestHead) reset() {
	h.Minor, h.Form, h.Framing, h.ContentLength = 0, Origin, NoBody, -1
	h.KeepAlive = false
	h.Scheme = nil
	h.scratch = h.scratch[:0]
	h.sectionState = sectionState{}
}

// requestLine parses the request line and returns its end.
func (h *RequestHead) requestLine(b []byte, req *message.Request, maxTarget int) (int, error) {
	p, err := skipEmptyLine(b)
	if err != nil {
		return 0, err
	}
	i := p
	for i < len(b) && class[b[i]]&isToken != 0 {
		i++
	}
	if i-p > maxMethod {
		return 0, errMethodLong
	}
	if i == len(b) {
		return 0, ErrIncomplete
	}
	if i == p || b[i] != ' ' {
		return 0, errMethod
	}
	req.Method = b[p:i]
	i++
	p = i
	for i < len(b) && class[b[i]]&isTarget != 0 {
		i++
	}
	if i-p > maxTarget {
		return 0, errTargetLong
	}
	if i == len(b) {
		return 0, ErrIncomplete
	}
	if b[i] != ' ' || i == p {
		if b[i] == '\r' && i > p { // HTTP/0.9
			return 0, errVersion
		}
		return 0, errTarget
	}
	target := b[p:i]
	i++
	minor, n, err := version(b[i:])
	if err != nil {
		return 0, err
	}
	if i += n; i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n' {
		h.Minor = minor
		return i + 2, h.target(target, req)
	}
	if i == len(b) || b[i] == '\r' && i+1 == len(b) {
		return 0, ErrIncomplete
	}
	return 0, errVersion
}

// skipEmptyLine returns the beginning of the request line.
func skipEmptyLine(b []byte) (int, error) {
	if len(b) == 0 || b[0] != '\r' {
		return 0, nil
	}
	if len(b) == 1 {
		return 0, ErrIncomplete
	}
	if b[1] != '\n' {
		return 0, errMethod
	}
	if len(b) > 2 && (b[2] == '\r' || b[2] == '\n') {
		return 0, errEmptyLines
	}
	return 2, nil
}

// version parses HTTP-version at the beginning of b (RFC 9112 section 2.3).
func version(b []byte) (minor uint8, n int, err error) {
	const prefix, size = "HTTP/", 8
	if len(b) >= size && string(b[:7]) == "HTTP/1." && b[7]-'0' <= 1 {
		return b[7] - '0', size, nil
	}
	for i := range min(len(b), size) {
		switch c := b[i]; {
		case i < len(prefix) && c == prefix[i], i == 6 && c == '.':
		case (i == 5 || i == 7) && class[c]&isDigit != 0:
		default:
			return 0, 0, errVersion
		}
	}
	if len(b) < size {
		return 0, 0, ErrIncomplete
	}
	return 0, 0, errVersionOther
}

// settle evaluates the complete head.
func (h *RequestHead) settle(req *message.Request) (err error) {
	if h.chunked && h.Minor == 0 {
		return errCodingVersion
	}
	if err = h.settleHost(req); err != nil {
		return err
	}
	switch {
	case h.chunked:
		h.Framing = Chunked
	case h.length >= 0:
		h.Framing = Length
	}
	h.ContentLength = h.length
	h.KeepAlive = h.persists(h.Minor)
	h.ExpectContinue = h.ExpectContinue && h.Minor == 1 && (h.chunked || h.length > 0)
	h.Upgrade = h.upgradeTo(h.Minor)
	req.Consumed = &h.Consumed
	return nil
}

// settleHost checks Host (RFC 9112 section 3.2) and uses it if the target has no authority.
func (h *RequestHead) settleHost(req *message.Request) (err error) {
	if !h.hasHost {
		if h.Minor == 1 {
			return errHostMissing
		}
		return nil
	}
	named := len(req.Host) > 0
	if named && len(h.host) == 0 {
		return nil
	}
	match, _, err := h.matchHost(h.host)
	if err != nil {
		return err
	}
	if !named {
		req.Host, req.MatchHost = h.host, match
	}
	return nil
}
