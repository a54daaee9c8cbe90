// Package cginame compares names of header fields as CGI-like servers distinguish them. It is not a part of package message because
// translation, which must not import the data plane, must reserve the same names as proxies do.
//
// It must not import any other package of Moongate.
package cginame

// table has the bytes of names as Append writes them.
var table [256]byte

func init() {
	for i := range table {
		c := byte(i)
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		table[i] = '-'
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			table[i] = c
		}
	}
}

// Byte returns what Append writes for a byte of a name.
func Byte(c byte) byte { return table[c] }

// Append appends a field name as CGI-like servers distinguish it from others: in lower case, with a hyphen for each byte
// that is neither a letter nor a digit. RFC 3875 section 4.1.18 makes an underscore of the hyphen, and servers do the same
// with the other bytes, so that a program takes X_User, X.User and X~User for X-User.
func Append[T []byte | string](dst []byte, name T) []byte {
	for i := range len(name) {
		dst = append(dst, table[name[i]])
	}
	return dst
}

// Of returns what Append appends.
func Of(name string) string { return string(Append(nil, name)) }

// Same reports whether Append writes the same for both names.
func Same[T, U []byte | string](a T, b U) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if table[a[i]] != table[b[i]] {
			return false
		}
	}
	return true
}
