// Package message holds HTTP request and response heads as the data plane works
// on them, whatever protocol they came in. It exists so that matching and
// filters know nothing of HTTP/1.1 or HTTP/2. All byte slices point into buffers
// of the connection (or into configuration) and are valid until the exchange
// ends. Nothing here allocates once the slices have grown.
//
// It imports the standard library only.
package message

// Field is one field line (RFC 9110 section 5).
type Field struct {
	Name  []byte // as received; compare case-insensitively
	Value []byte // without surrounding white space
	// Line is the whole line as received, with its CRLF, for verbatim forwarding;
	// nil for a field that the proxy or one of its filters made, by which headermodifier knows it from a client's.
	Line []byte
}

// Fields is a header or trailer section in order.
type Fields struct {
	list []Field
}

// Reset empties the section and keeps its memory.
func (f *Fields) Reset() { f.list = f.list[:0] }

// Forget is like Reset, and also drops the references to buffers that lines point into, including those of earlier
// sections.
func (f *Fields) Forget() {
	f.Reset()
	clear(f.list[:cap(f.list)])
}

// Len returns the number of field lines.
func (f *Fields) Len() int { return len(f.list) }

// At returns field line i. The pointer is valid until the section changes.
func (f *Fields) At(i int) *Field { return &f.list[i] }

// Append adds a field line at the end.
func (f *Fields) Append(fl Field) { *f.Extend() = fl }

// Extend adds a field line at the end, for the caller to fill in: it may hold anything. The parser uses it, because a
// Field that is built elsewhere and copied at once stalls the processor.
func (f *Fields) Extend() *Field {
	n := len(f.list)
	if n < cap(f.list) {
		f.list = f.list[:n+1]
	} else {
		f.list = append(f.list, Field{})
	}
	return &f.list[n]
}

// Get returns the value of the first line with that name (any case) and whether there is one.
func (f *Fields) Get(name string) ([]byte, bool) {
	for i := range f.list {
		if EqualFold(f.list[i].Name, name) {
			return f.list[i].Value, true
		}
	}
	return nil, false
}

// Add appends a line made by the gateway. Name and value must outlive the exchange.
func (f *Fields) Add(name, value []byte) {
	fl := f.Extend()
	fl.Name, fl.Value, fl.Line = name, value, nil
}

// Set replaces all lines with that name by one, at the position of the first.
func (f *Fields) Set(name, value []byte) {
	for i := range f.list {
		if EqualFoldBytes(f.list[i].Name, name) {
			f.list[i] = Field{Name: name, Value: value}
			f.removeFrom(i+1, name)
			return
		}
	}
	f.Add(name, value)
}

// Remove removes all lines with that name.
func (f *Fields) Remove(name []byte) { f.removeFrom(0, name) }

func (f *Fields) removeFrom(start int, name []byte) {
	n := start
	for i := start; i < len(f.list); i++ {
		if EqualFoldBytes(f.list[i].Name, name) {
			continue
		}
		if n != i {
			f.list[n] = f.list[i]
		}
		n++
	}
	f.list = f.list[:n]
}

// RemoveIf removes the lines for which drop returns true.
func (f *Fields) RemoveIf(drop func(*Field) bool) {
	n := 0
	for i := range f.list {
		if drop(&f.list[i]) {
			continue
		}
		if n != i {
			f.list[n] = f.list[i]
		}
		n++
	}
	f.list = f.list[:n]
}

// Request is a request head.
type Request struct {
	Method []byte
	// Host is the authority of the target or the Host field, as received, including the port. The backend receives it.
	// MatchHost is used for routing.
	Host []byte
	// MatchHost is Host in lower case without port and trailing dot.
	MatchHost []byte
	// Path is the normalised path that is matched and forwarded, still percent-encoded,
	// beginning with '/'; or "*" for OPTIONS *.
	Path []byte
	// Query is the part after '?'; HasQuery distinguishes "/a?" from "/a".
	Query    []byte
	HasQuery bool
	// Header holds all field lines except those that the connection consumed
	// (hop-by-hop fields, Host, Content-Length, Transfer-Encoding).
	Header Fields
	// Consumed are consumed fields that matches may still use; nil means none.
	Consumed *Consumed
}

// Consumed are fields that are not in Request.Header because the connection has consumed them, but that matches may
// use.
type Consumed struct {
	Length         []byte // the value of Content-Length, nil if there is none
	Upgrade        []byte // the protocol that the client wants to switch to, nil if there is none that the gateway would pass on
	TETrailers     bool   // TE: trailers
	ExpectContinue bool   // Expect: 100-continue, and the request has a body
}

var trailers, continues = []byte("trailers"), []byte("100-continue")

// Get returns the value of a field, whose name must be in lower case; nil if there is none. c may be nil.
func (c *Consumed) Get(name string) []byte {
	switch {
	case c == nil:
	case name == "content-length":
		return c.Length
	case name == "upgrade":
		return c.Upgrade
	case name == "te" && c.TETrailers:
		return trailers
	case name == "expect" && c.ExpectContinue:
		return continues
	}
	return nil
}

// Response is a response head.
type Response struct {
	Status int    // 100-999
	Reason []byte // reason phrase; may be empty
	Header Fields // see Request.Header
}

// Reset empties the request and keeps its memory.
func (r *Request) Reset() {
	r.Method, r.Host, r.MatchHost, r.Path, r.Query, r.HasQuery, r.Consumed = nil, nil, nil, nil, nil, false, nil
	r.Header.Reset()
}

// Reset empties the response and keeps its memory.
func (r *Response) Reset() {
	r.Status, r.Reason = 0, nil
	r.Header.Reset()
}

var lower [256]byte

func init() {
	for i := range lower {
		lower[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			lower[i] = byte(i) + 'a' - 'A'
		}
	}
}

// EqualFold compares ASCII case-insensitively.
func EqualFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		if lower[b[i]] != lower[s[i]] {
			return false
		}
	}
	return true
}

// EqualFoldBytes compares ASCII case-insensitively.
func EqualFoldBytes(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if lower[a[i]] != lower[b[i]] {
			return false
		}
	}
	return true
}

// AppendLower appends b in ASCII lower case.
func AppendLower(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, lower[c])
	}
	return dst
}
