package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// lenient is a parser of requests that forgives what ours must not let through. Each field is a
// thing that some server does.
type lenient struct {
	crEnds   bool // a CR alone ends a line
	cgi      bool // what is neither a letter nor a digit counts as a hyphen
	preferCL bool // Content-Length before Transfer-Encoding
	lastCL   bool // the last Content-Length before the first
}

// understood is a request as a lenient server understands it. Names are as sent.
type understood struct {
	method, target string
	fields         [][2]string
	chunked        bool
	body           string
	trailer        [][2]string
}

// get is the first value of a field, as this server compares names.
func (l lenient) get(r *understood, name string) (value string, n int) {
	for _, f := range r.fields {
		if l.name(f[0]) == name {
			if n++; n == 1 || l.lastCL {
				value = f[1]
			}
		}
	}
	return value, n
}

func (l lenient) name(s string) string {
	s = strings.ToLower(strings.Trim(s, " \t\r\v\f\x00"))
	if l.cgi {
		s = cgiName(s)
	}
	return s
}

// cgiName returns a name, which is in lower case, as a CGI program sees it.
func cgiName(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, s)
}

// line cuts off one line.
func (l lenient) line(b []byte) (line string, rest []byte, ok bool) {
	ends := "\n"
	if l.crEnds {
		ends = "\r\n"
	}
	i := bytes.IndexAny(b, ends)
	if i < 0 {
		return "", nil, false
	}
	line, rest = string(b[:i]), b[i+1:]
	if b[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return strings.TrimSuffix(line, "\r"), rest, true
}

// section cuts off field lines and the empty line behind them.
func (l lenient) section(b []byte) (fields [][2]string, rest []byte, ok bool) {
	for {
		var line string
		if line, b, ok = l.line(b); !ok {
			return nil, nil, false
		}
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "":
			return fields, b, true
		case (line[0] == ' ' || line[0] == '\t') && len(fields) > 0:
			fields[len(fields)-1][1] += " " + strings.TrimSpace(line)
		default:
			fields = append(fields, [2]string{name, strings.TrimPrefix(value, " ")})
		}
	}
}

// requests is everything that such a server takes for a request, and what is left.
func (l lenient) requests(b []byte) (all []understood, rest []byte) {
	for len(b) > 0 {
		var r understood
		line, after, ok := l.line(b)
		if !ok {
			break
		}
		if line == "" { // RFC 9112 section 2.2
			b = after
			continue
		}
		r.method, r.target, _ = strings.Cut(line, " ")
		if i := strings.LastIndexByte(r.target, ' '); i >= 0 {
			r.target = r.target[:i]
		}
		if r.fields, after, ok = l.section(after); !ok {
			break
		}
		if after, ok = l.content(&r, after); !ok {
			break
		}
		all, b = append(all, r), after
	}
	return all, b
}

// content cuts off the body.
func (l lenient) content(r *understood, b []byte) (rest []byte, ok bool) {
	te, _ := l.get(r, "transfer-encoding")
	cl, lengths := l.get(r, "content-length")
	r.chunked = strings.Contains(strings.ToLower(te), "chunked") && !(l.preferCL && lengths > 0)
	if !r.chunked {
		n, _ := strconv.Atoi(digits(strings.TrimLeft(cl, "+ \t\v0"), "0123456789"))
		if n > len(b) {
			return nil, false
		}
		r.body = string(b[:n])
		return b[n:], true
	}
	for {
		line, after, ok := l.line(b)
		if !ok {
			return nil, false
		}
		n, _ := strconv.ParseUint(digits(strings.TrimSpace(line), "0123456789abcdefABCDEF"), 16, 32)
		if n == 0 {
			r.trailer, after, ok = l.section(after)
			return after, ok
		}
		if n > uint64(len(after)) {
			return nil, false
		}
		r.body += string(after[:n])
		if _, b, ok = l.line(after[n:]); !ok {
			return nil, false
		}
	}
}

// digits is what s begins with.
func digits(s, set string) string {
	return s[:len(s)-len(strings.TrimLeft(s, set))]
}

// checkLenient has all kinds of lenient servers read what a backend was sent: all must understand
// the same, and it is returned. cut: the connection may have ended in the middle.
func checkLenient(t *testing.T, b []byte, cut bool) (all []understood) {
	t.Helper()
	all, rest := lenient{}.requests(b)
	if !cut && len(rest) > 0 {
		t.Fatalf("the backend hears %q, of which the end is no request", b)
	}
	for i := range 16 {
		l := lenient{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0}
		if other, _ := l.requests(b); fmt.Sprint(other) != fmt.Sprint(all) {
			t.Fatalf("the backend hears %q, which is for one\n%+v\nand for another (%+v)\n%+v", b, all, l, other)
		}
	}
	return all
}

// TestLenient makes sure that the lenient servers are.
func TestLenient(t *testing.T) {
	for _, tc := range []struct {
		l    lenient
		in   string
		want string
	}{
		{lenient{}, "GET / HTTP/1.1\nHost: h\n\nGET /evil HTTP/1.1\r\n\r\n", "/ /evil"},
		{lenient{}, "GET / HTTP/1.1\r\nX: y\rContent-Length: 21\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/ /evil"},
		{lenient{crEnds: true}, "GET / HTTP/1.1\r\nX: y\rContent-Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{}, "POST / HTTP/1.1\r\nContent-Length : 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{}, "POST / HTTP/1.1\r\nContent-Length: 22\r\nTransfer-Encoding: x\r\n chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/ /evil"},
		{lenient{preferCL: true}, "POST / HTTP/1.1\r\nContent-Length: 27\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{cgi: true}, "POST / HTTP/1.1\r\nContent_Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{cgi: true}, "POST / HTTP/1.1\r\nContent.Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{lastCL: true}, "POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/"},
		{lenient{}, "POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 22\r\n\r\nGET /evil HTTP/1.1\r\n\r\n", "/ /evil"},
	} {
		var got []string
		all, _ := tc.l.requests([]byte(tc.in))
		for _, r := range all {
			got = append(got, r.target)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%+v reads %q as %+v", tc.l, tc.in, all)
		}
	}
}
