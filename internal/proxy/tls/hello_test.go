package tls

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// helloOf is what a client sends first.
func helloOf(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		tls.Client(client, c).Handshake()
		client.Close()
	}()
	b := make([]byte, MaxHello)
	n := 0
	for h := (Hello{}); ; {
		m, err := server.Read(b[n:])
		if n += m; err != nil {
			t.Fatal(err)
		}
		if done, err := h.Complete(b[:n]); err != nil {
			t.Fatal(err)
		} else if done {
			return b[:n]
		}
	}
}

// inRecords is the same message in records of size bytes at most.
func inRecords(hello []byte, size int) (out []byte) {
	h := Hello{}
	h.Complete(hello)
	for part := range chunks(h.join(hello), size) {
		out = append(out, recordHandshake, 3, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

func chunks(b []byte, size int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// grown has so many bytes more, as padding (RFC 7685) behind its other extensions.
func grown(hello []byte, by int) []byte {
	h := Hello{}
	h.Complete(hello)
	m := bytes.Clone(h.join(hello)[:h.size()])
	at := handshakeHeader + 2 + 32
	at += 1 + int(m[at])
	at += 2 + int(binary.BigEndian.Uint16(m[at:]))
	at += 1 + int(m[at])
	binary.BigEndian.PutUint16(m[at:], binary.BigEndian.Uint16(m[at:])+uint16(by))
	m = append(m, 0, 21)
	m = binary.BigEndian.AppendUint16(m, uint16(by-4))
	m = append(m, make([]byte, by-4)...)
	n := len(m) - handshakeHeader
	m[1], m[2], m[3] = byte(n>>16), byte(n>>8), byte(n)
	var record []byte
	for part := range chunks(m, maxPlaintext) {
		record = append(record, recordHandshake, 3, 1)
		record = binary.BigEndian.AppendUint16(record, uint16(len(part)))
		record = append(record, part...)
	}
	return record
}

// peeked is what Hello tells of bytes that come in pieces; more tells that it wants further ones.
func peeked(b []byte, piece int) (name string, more bool, err error) {
	h := Hello{}
	for end := min(piece, len(b)); ; end = min(end+piece, len(b)) {
		done, err := h.Complete(b[:end])
		if err != nil {
			return "", false, err
		}
		if done {
			n, err := h.ServerName(b[:end])
			return string(n), false, err
		}
		if end == len(b) {
			return "", true, nil
		}
	}
}

// TestHello finds the server name however the ClientHello is cut up.
func TestHello(t *testing.T) {
	for name, c := range map[string]*tls.Config{
		"a.example": {ServerName: "a.example", NextProtos: []string{"h2"}}, "A.Example": {ServerName: "A.Example"}, "": {InsecureSkipVerify: true},
		"12.example":                    {ServerName: "12.example", MaxVersion: tls.VersionTLS12},
		strings.Repeat("a.", 126) + "b": {ServerName: strings.Repeat("a.", 126) + "b"},
	} {
		whole := helloOf(t, c)
		for _, record := range []int{1, 3, 4, 100, maxPlaintext} {
			for _, piece := range []int{1, 7, len(whole), 6 * len(whole)} {
				b := append(inRecords(whole, record), "what follows"...)
				if got, more, err := peeked(b, piece); got != name || more || err != nil {
					t.Errorf("%q in records of %d and pieces of %d: %q %v %v", name, record, piece, got, more, err)
				}
			}
		}
	}
}

// TestHelloBounds: one of almost MaxHello bytes is found, and a larger one refused without a look at all of it.
func TestHelloBounds(t *testing.T) {
	whole := helloOf(t, &tls.Config{ServerName: "a.example"})
	large := grown(whole, MaxHello-len(whole)-4*recordHeader)
	if got, _, err := peeked(large, 1000); got != "a.example" || err != nil || len(large) > MaxHello || len(large) < MaxHello-100 {
		t.Errorf("%q %v for a ClientHello of %d bytes", got, err, len(large))
	}
	if _, _, err := peeked(inRecords(large, 1000)[:MaxHello], 1000); err != ErrHelloTooLarge {
		t.Errorf("%v for one that its records make larger than it may be, want %v", err, ErrHelloTooLarge)
	}
	if _, _, err := peeked([]byte{recordHandshake, 3, 1, 0, 4, handshakeClientHello, 2, 0, 0}, 9); err != ErrHelloTooLarge {
		t.Errorf("%v for one that says it is larger, want %v", err, ErrHelloTooLarge)
	}
}

// TestNoHello: what does not begin with a ClientHello is refused as early as that shows.
func TestNoHello(t *testing.T) {
	whole := helloOf(t, &tls.Config{ServerName: "a.example"})
	twice := bytes.Replace(whole, []byte("\x00\x00\x00\x0e\x00\x0c\x00\x00\x09a.example"), []byte("\x00\x00\x00\x0e\x00\x0c\x00\x00\x02ab\x00\x00\x04cdef"), 1)
	for name, b := range map[string][]byte{
		"HTTP": []byte("G"), "a version of no TLS": {recordHandshake, 0x20}, "SSL 2": {0x80, 0x2e, 1}, "an alert": {21, 3, 1, 0, 2},
		"an empty record": {recordHandshake, 3, 1, 0, 0}, "a record that is too large": {recordHandshake, 3, 1, 0x40, 1},
		"another message": {recordHandshake, 3, 1, 0, 1, 2}, "an empty ClientHello": {recordHandshake, 3, 1, 0, 4, 1, 0, 0, 0},
		"two names": twice, "a name that no host has": grownName(t, 256), "a dot behind the name": bytes.Replace(whole, []byte("a.example"), []byte("a.exampl."), 1),
	} {
		if bytes.Equal(b, whole) {
			t.Fatalf("%s: nothing was replaced", name)
		}
		if got, more, err := peeked(b, len(b)); err != ErrNotHello {
			t.Errorf("%s: %q %v %v, want %v", name, got, more, err, ErrNotHello)
		}
	}
	for end := range len(whole) {
		if _, more, err := peeked(whole[:end], max(end, 1)); err != nil || !more {
			t.Fatalf("%v %v after %d bytes, want more", more, err, end)
		}
	}
}

// grownName asks for a name of so many bytes.
func grownName(t testing.TB, size int) []byte {
	t.Helper()
	return helloOf(t, &tls.Config{ServerName: strings.Repeat("a.", size/2-1) + strings.Repeat("b", 2+size%2)})
}

// TestHelloAllocatesNothing where it stands in one record, as most do.
func TestHelloAllocatesNothing(t *testing.T) {
	whole := helloOf(t, &tls.Config{ServerName: "a.example"})
	if n := testing.AllocsPerRun(100, func() {
		h := Hello{}
		if done, err := h.Complete(whole); !done || err != nil {
			t.Fatal(done, err)
		}
		if name, err := h.ServerName(whole); string(name) != "a.example" || err != nil {
			t.Fatal(name, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// said is what crypto/tls makes of the beginning of a connection.
func said(b []byte) (name string, ok bool) {
	tls.Server(readOnly{r: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errors.New("enough")
	}}).Handshake()
	return name, ok
}

// readOnly is a connection that takes whatever is written to it.
type readOnly struct {
	net.Conn
	r io.Reader
}

func (c readOnly) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c readOnly) Write(b []byte) (int, error) { return len(b), nil }

// FuzzHello: the server name is what crypto/tls takes it for, however the bytes come, and what both of them refuse is refused without a panic.
func FuzzHello(f *testing.F) {
	for _, c := range []*tls.Config{{ServerName: "a.example"}, {InsecureSkipVerify: true}, {ServerName: "b.example", MaxVersion: tls.VersionTLS12}} {
		hello := helloOf(f, c)
		f.Add(hello, uint16(1))
		f.Add(inRecords(hello, 50), uint16(9))
		f.Add(grown(hello, 20000), uint16(1000))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n"), uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		name, more, err := peeked(b, int(piece)+1)
		if wholeName, wholeMore, wholeErr := peeked(b, max(len(b), 1)); wholeName != name || wholeMore != more && err == nil || !errors.Is(wholeErr, err) {
			t.Fatalf("in pieces of %d: %q %v %v; whole: %q %v %v", int(piece)+1, name, more, err, wholeName, wholeMore, wholeErr)
		}
		if err != nil || more {
			return
		}
		if want, ok := said(b); ok && want != name {
			t.Fatalf("%q, crypto/tls has %q", name, want)
		}
	})
}
