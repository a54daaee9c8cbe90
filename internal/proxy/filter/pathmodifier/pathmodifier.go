// Package pathmodifier replaces a path or the prefix of it that matched, for the filters that do so. It exists so that
// a redirect and a rewrite always agree on the element-wise rules of HTTPPathModifier, and so that whatever is
// configured, the result is a path in the form of package http1: it begins with '/', has no dot segments, and no byte
// that could end a request line or a field line.
//
// It imports config and filter only.
package pathmodifier

import (
	"bytes"
	"errors"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
)

// Modifier is a compiled PathModifier. The zero value keeps the path.
type Modifier struct {
	kind   kind
	value  []byte // full: the path; prefix: the replacement without trailing slash, "" for "/"
	prefix []byte // without trailing slash, "" for "/"
}

type kind uint8

const (
	keep kind = iota
	full
	prefix
)

// Compile compiles a Modifier; nil keeps the path. filterName is for the error.
func Compile(filterName string, c *config.PathModifier) (Modifier, error) {
	fail := func(field string, err error) (Modifier, error) {
		return Modifier{}, &filter.Error{Filter: filterName, Field: "path." + field, Problem: err.Error(), Remedy: "give a path such as /a/b"}
	}
	switch k := c.GetKind().(type) {
	case *config.PathModifier_ReplaceFullPath:
		value, err := Normal(k.ReplaceFullPath)
		if err != nil {
			return fail("replace_full_path", err)
		}
		return Modifier{kind: full, value: []byte(value)}, nil
	case *config.PathModifier_ReplacePrefix:
		value, err := Normal(k.ReplacePrefix.GetReplacement())
		if err != nil {
			return fail("replace_prefix.replacement", err)
		}
		matched, err := Normal(k.ReplacePrefix.GetPrefix())
		if err != nil {
			return fail("replace_prefix.prefix", err)
		}
		return Modifier{
			kind:   prefix,
			value:  []byte(strings.TrimRight(value, "/")),
			prefix: []byte(strings.TrimRight(matched, "/")),
		}, nil
	}
	return Modifier{}, nil
}

// Keeps reports whether the Modifier changes no path.
func (m *Modifier) Keeps() bool { return m.kind == keep }

// Append appends the modified path. A path without the prefix, which another filter may have produced, is not changed.
// If the prefix is replaced by nothing, slashes at the beginning of the rest become one, because "//a" at the beginning
// of a URI reference names a host.
func (m *Modifier) Append(dst, path []byte) []byte {
	if len(path) == 0 || path[0] != '/' { // "*"
		path = slash
	}
	switch m.kind {
	case full:
		return append(dst, m.value...)
	case prefix:
		rest, ok := bytes.CutPrefix(path, m.prefix)
		if !ok || len(rest) > 0 && rest[0] != '/' {
			break
		}
		dst = append(dst, m.value...)
		if len(m.value) == 0 {
			dst = append(dst, '/')
			rest = bytes.TrimLeft(rest, "/")
		}
		return AppendEscaped(dst, rest)
	}
	return AppendEscaped(dst, path)
}

var slash = []byte{'/'}

// AppendEscaped appends part of a path or a query of a request, and escapes invalid bytes. The parser has already
// excluded them; this is a second check. The caller must handle '?' and '#'.
func AppendEscaped(dst, b []byte) []byte {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			dst = appendEscape(dst, c)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// Normal converts a path of the configuration to the form of paths that package http1 has parsed: escapes of unreserved
// characters are decoded, other escapes are in upper case, invalid bytes are escaped (including '?' and '#', because
// the value is a path), and dot segments are removed. A missing slash at the beginning is added.
func Normal(value string) (string, error) {
	if !strings.HasPrefix(value, "/") {
		value = "/" + value
	}
	escaped := make([]byte, 0, len(value)+8)
	for i := 0; i < len(value); i++ {
		c := value[i]
		escape := !pathByte(c)
		if c == '%' {
			if decoded, ok := unhex(value[i+1:]); ok {
				c, i = decoded, i+2
				escape = !unreserved(c)
			}
		}
		switch {
		case c == 0:
			return "", errors.New("a path cannot hold a NUL")
		case escape:
			escaped = appendEscape(escaped, c)
		default:
			escaped = append(escaped, c)
		}
	}
	return removeDots(string(escaped)), nil
}

// removeDots implements RFC 3986 section 5.2.4 for a path that begins with '/': ".." at the root stays there.
func removeDots(path string) string {
	segments := strings.Split(path[1:], "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "") // "/a/." and "/a/b/.." are "/a/"
		}
	}
	return "/" + strings.Join(kept, "/")
}

const hexDigits = "0123456789ABCDEF"

func appendEscape(dst []byte, c byte) []byte {
	return append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
}

// unhex parses the two digits after a '%'.
func unhex(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	var v byte
	for _, c := range []byte(s[:2]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | c
	}
	return v, true
}

// unreserved reports whether c is an unreserved character (RFC 3986 section 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// pathByte reports whether c is a pchar or '/' (RFC 3986 section 3.3).
func pathByte(c byte) bool {
	return unreserved(c) || strings.IndexByte("!$&'()*+,;=:@/", c) >= 0
}
