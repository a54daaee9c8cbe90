package http1

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var (
	rootPath     = []byte("/")
	asteriskPath = []byte("*")
)

// target parses the request target (RFC 9112 section 3.2). Its bytes have been checked.
func (h *RequestHead) target(t []byte, req *message.Request) error {
	switch {
	case string(req.Method) == "CONNECT":
		return h.authorityForm(t, req)
	case t[0] == '/':
		return h.path(t, req)
	case len(t) == 1 && t[0] == '*':
		if string(req.Method) != "OPTIONS" {
			return errTargetForm
		}
		h.Form, req.Path = Asterisk, asteriskPath
		return nil
	}
	return h.absoluteForm(t, req)
}

func (h *RequestHead) authorityForm(t []byte, req *message.Request) error {
	match, port, err := h.matchHost(t)
	if err != nil || len(port) == 0 {
		return errTargetForm
	}
	h.Form, req.Host, req.MatchHost = Authority, t, match
	return nil
}

func (h *RequestHead) absoluteForm(t []byte, req *message.Request) (err error) {
	i := bytes.IndexByte(t, ':')
	if i < 0 || len(t) < i+3 || t[i+1] != '/' || t[i+2] != '/' {
		return errTargetForm
	}
	if h.Scheme = t[:i]; !is(h.Scheme, "http") && !is(h.Scheme, "https") {
		return errTargetScheme
	}
	h.Form = Absolute
	t = t[i+3:]
	if i = bytes.IndexAny(t, "/?"); i < 0 {
		i = len(t)
	}
	req.Host = t[:i]
	if req.MatchHost, _, err = h.matchHost(req.Host); err != nil {
		return err
	}
	switch t = t[i:]; {
	case len(t) == 0 && string(req.Method) == "OPTIONS":
		h.Form, req.Path = Asterisk, asteriskPath
	case len(t) == 0:
		req.Path = rootPath
	case t[0] == '?':
		req.Path, req.Query, req.HasQuery = rootPath, t[1:], true
	default:
		return h.path(t, req)
	}
	return nil
}

// path splits t, which begins with "/", at the query and normalises the path.
func (h *RequestHead) path(t []byte, req *message.Request) error {
	if i := bytes.IndexByte(t, '?'); i >= 0 {
		req.Query, req.HasQuery = t[i+1:], true
		t = t[:i]
	}
	normal, err := isNormal(t)
	if err != nil {
		return err
	}
	if normal {
		req.Path = t
		return nil
	}
	start := len(h.scratch)
	h.scratch = appendEscapes(h.scratch, t)
	path := h.scratch[start:]
	n, ok := removeDots(path)
	if !ok {
		return errTargetClimbs
	}
	if hidesDots(path[:n]) {
		return errTargetHidden
	}
	req.Path = path[:n]
	return nil
}

// isNormal checks the path and reports whether normalising would neither change nor reject it.
func isNormal(path []byte) (bool, error) {
	normal := true
	for i := 0; i < len(path); i++ {
		c := path[i]
		if class[c]&isPathWork == 0 {
			continue
		}
		switch c {
		case '\\':
			return false, errTargetPath
		case '.':
			if path[i-1] == '/' && isDots(path[i:]) {
				normal = false
			}
		case '%':
			if i+2 >= len(path) || class[path[i+1]]&class[path[i+2]]&isHex == 0 {
				return false, errTargetPath
			}
			v := unhex(path[i+1])<<4 | unhex(path[i+2])
			if v == 0 {
				return false, errTargetPath
			}
			if class[v]&isUnreserved != 0 || path[i+1] >= 'a' || path[i+2] >= 'a' || v == '/' || v == '\\' {
				normal = false
			}
			i += 2
		}
	}
	return normal, nil
}

// isDots reports whether b begins with a segment "." or "..", perhaps with a parameter (RFC 3986 section 3.3).
func isDots(b []byte) bool {
	n := 1
	if n < len(b) && b[n] == '.' {
		n++
	}
	return n == len(b) || b[n] == '/' || b[n] == ';'
}

// hidesDots reports whether a path whose dot segments were removed still has one for servers that decode slashes and
// backslashes before they look for dot segments, or remove the parameters of segments (like Tomcat for "/..;/"). Such a
// server would serve another path than the one that was matched.
func hidesDots(path []byte) bool {
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '/':
		case path[i] == '%' && isSeparator(path[i:]):
			i += 2
		default:
			continue
		}
		if rest := path[i+1:]; len(rest) > 0 && rest[0] == '.' && (isDots(rest) || endsDots(rest)) {
			return true
		}
	}
	return false
}

// endsDots reports whether b begins with "." or ".." and an encoded separator.
func endsDots(b []byte) bool {
	return isSeparator(b[1:]) || b[1] == '.' && isSeparator(b[2:])
}

// isSeparator reports whether b begins with an encoded slash or backslash.
func isSeparator(b []byte) bool {
	return len(b) > 2 && (string(b[:3]) == "%2F" || string(b[:3]) == "%5C")
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// appendEscapes appends a path that isNormal has checked, with unreserved characters decoded and the other escapes in
// upper case.
func appendEscapes(dst, path []byte) []byte {
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			dst = append(dst, path[i])
			continue
		}
		v := unhex(path[i+1])<<4 | unhex(path[i+2])
		if class[v]&isUnreserved != 0 {
			dst = append(dst, v)
		} else {
			dst = append(dst, '%', upperHex[v>>4], upperHex[v&15])
		}
		i += 2
	}
	return dst
}

const upperHex = "0123456789ABCDEF"

// removeDots removes dot segments in place (RFC 3986 section 5.2.4) and returns the new length. ok is false for a path
// that climbs above the root.
func removeDots(path []byte) (n int, ok bool) {
	for i := 0; i < len(path); { // path[i] is '/'
		end := i + 1
		for end < len(path) && path[end] != '/' {
			end++
		}
		switch segment := path[i+1 : end]; string(segment) {
		case "..":
			if n == 0 {
				return 0, false
			}
			n = bytes.LastIndexByte(path[:n], '/')
			fallthrough
		case ".":
			if end == len(path) {
				path[n] = '/'
				n++
			}
		default:
			n += copy(path[n:], path[i:end])
		}
		i = end
	}
	return n, true
}
