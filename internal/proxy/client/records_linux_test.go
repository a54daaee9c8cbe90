package client

import (
	"bytes"
	stdtls "crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// script is the socket below a TLS server: the handshake goes through, and then only what next says
// is there, piece by piece.
type script struct {
	net.Conn
	scripted bool
	next     []byte
	later    [][]byte // the benchmark's, for next
	most     int      // bytes of one Read; 0 is any number
	records  records
}

func (s *script) Read(b []byte) (n int, err error) {
	switch {
	case !s.scripted:
		n, err = s.Conn.Read(b)
	case len(s.next) == 0:
		return 0, socket.ErrNothingYet
	default:
		n = len(s.next)
		if s.most > 0 {
			n = min(n, s.most)
		}
		n = copy(b, s.next[:n])
		s.next = s.next[n:]
	}
	s.records.feed(b[:n])
	return n, err
}

// sealed connects a TLS server on a script with the sealer of its client.
func sealed(t testing.TB) (*stdtls.Conn, *script, *testkit.Sealer) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	var keys bytes.Buffer
	client := stdtls.Client(near, &stdtls.Config{InsecureSkipVerify: true, MinVersion: stdtls.VersionTLS13, KeyLogWriter: &keys})
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	s := &script{Conn: far}
	server := stdtls.Server(s, &stdtls.Config{SessionTicketsDisabled: true,
		Certificates: []stdtls.Certificate{testkit.Certificate{Hosts: []string{"a.test"}}.TLS(t)}})
	if err := errors.Join(server.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	if suite := client.ConnectionState().CipherSuite; suite != stdtls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("the cipher is %s, and the sealer knows AES-128-GCM", stdtls.CipherSuiteName(suite))
	}
	s.scripted = true
	return server, s, testkit.SealerOf(t, keys.String(), testkit.ClientTrafficSecret)
}

// readStep asks the server as Conn.readStep does; ok is false where there is nothing.
func (s *script) readStep(server *stdtls.Conn, into []byte) (n int, ok bool, err error) {
	n, err = server.Read(into)
	switch {
	case n > 0:
		if n < len(into) {
			s.records.took()
		}
		return n, true, nil
	case err == socket.ErrNothingYet:
		s.records.drained()
		return 0, false, nil
	}
	return 0, false, err
}

// deliver gives the server a piece of a stream and reads with room bytes at a time until the framing
// tells that there is nothing; then crypto/tls must think so, too. It returns what was read.
func (s *script) deliver(t testing.TB, server *stdtls.Conn, piece []byte, room int) (got []byte, err error) {
	t.Helper()
	s.next = append(s.next, piece...)
	into := make([]byte, room)
	for {
		n, ok, err := s.readStep(server, into)
		if err != nil {
			return got, err
		}
		got = append(got, into[:n]...)
		if !ok || n < room && len(s.next) == 0 && s.records.usedUp() {
			break
		}
	}
	if n, ok, err := s.readStep(server, into); ok || err != nil {
		t.Fatalf("the framing tells that nothing is left of %d bytes, and crypto/tls gives %d bytes, error %v", len(piece), n, err)
	}
	return got, nil
}

// streamOf is what the tests send: data in records of several sizes among those that carry none.
func streamOf(s *testkit.Sealer) (wire, data []byte) {
	for _, size := range []int{1, 0, 40, 3, 0} {
		part := bytes.Repeat([]byte{byte(size)}, size)
		wire, data = append(wire, s.Seal(testkit.TLSData, part)...), append(data, part...)
	}
	wire = append(wire, s.Rekey(false)...)
	wire = append(wire, s.Seal(testkit.TLSAlert, []byte{1, 90})...) // user_canceled: to be ignored
	wire, data = append(wire, s.Seal(testkit.TLSData, []byte("after"))...), append(data, "after"...)
	return append(wire, s.Rekey(false)...), data
}

// A stream of records in two pieces, cut at each of its bytes, and in three.
func TestRecordsTellWhenTLSHoldsNothing(t *testing.T) {
	server, s, client := sealed(t)
	wire, _ := streamOf(client)
	if _, err := s.deliver(t, server, wire, 64); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{1, 16, 40, 4096} {
		for _, most := range []int{0, 7} {
			for cut := range len(wire) + 1 {
				s.most = most
				wire, want := streamOf(client)
				var got []byte
				for _, piece := range [][]byte{wire[:cut], wire[cut : cut+(len(wire)-cut)/2], wire[cut+(len(wire)-cut)/2:]} {
					part, err := s.deliver(t, server, piece, room)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, part...)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("room %d, cut at %d: got %q, want %q", room, cut, got, want)
				}
			}
		}
	}
	if _, err := s.deliver(t, server, append(client.Seal(testkit.TLSData, []byte("last")), client.Seal(testkit.TLSAlert, []byte{1, 0})...), 64); err != io.EOF {
		t.Errorf("after close_notify: %v, want the end of the stream", err)
	}
}

// A request in one record, or in several that are read one by one, needs no second look.
func TestRecordsSpareTheSecondLook(t *testing.T) {
	server, s, client := sealed(t)
	s.next = client.Seal(testkit.TLSData, []byte("x"))
	into := make([]byte, 4096)
	s.readStep(server, into)
	s.readStep(server, into) // once, because of the handshake
	for _, count := range []int{1, 1, 2, 3} {
		for range count {
			s.next = append(s.next, client.Seal(testkit.TLSData, []byte("GET / HTTP/1.1"))...)
		}
		for i := range count {
			if s.records.usedUp() && len(s.next) == 0 {
				t.Fatalf("used up after %d of %d records", i, count)
			}
			if n, ok, err := s.readStep(server, into); n == 0 || !ok || err != nil {
				t.Fatalf("record %d of %d: %d bytes, %v", i, count, n, err)
			}
		}
		if !s.records.usedUp() {
			t.Errorf("not used up after all of %d records", count)
		}
	}
}

// FuzzRecords makes a stream of records, and cuts it, as the bytes say.
func FuzzRecords(f *testing.F) {
	server, s, client := sealed(f)
	f.Add([]byte("dddd"), uint16(3), uint8(0), uint16(64))
	f.Add([]byte{0, 1, 2, 3, 'k', 'a', 200, 'k', 0}, uint16(5), uint8(4), uint16(1))
	f.Add([]byte{255, 255, 255, 'a', 255}, uint16(500), uint8(0), uint16(300))
	f.Fuzz(func(t *testing.T, kinds []byte, cut uint16, most uint8, room uint16) {
		var wire, want []byte
		for _, k := range kinds[:min(len(kinds), 12)] { // crypto/tls bears 16 records without data
			switch k {
			case 'k':
				wire = append(wire, client.Rekey(false)...)
			case 'a':
				wire = append(wire, client.Seal(testkit.TLSAlert, []byte{1, 90})...)
			default:
				data := bytes.Repeat([]byte{k}, int(k)*int(k)/16)
				wire, want = append(wire, client.Seal(testkit.TLSData, data)...), append(want, data...)
			}
		}
		wire, want = append(wire, client.Seal(testkit.TLSData, []byte("."))...), append(want, '.')
		s.most = int(most)
		var got []byte
		for size := int(cut)%4096 + 1; len(wire) > 0; {
			n := min(size, len(wire))
			part, err := s.deliver(t, server, wire[:n], int(room)%5000+1)
			if err != nil {
				t.Fatal(err)
			}
			got, wire = append(got, part...), wire[n:]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes, want %d", len(got), len(want))
		}
	})
}

// What it costs to learn, behind a request of one record, that nothing is left: by the framing, and
// by asking crypto/tls. The request itself is decrypted in both.
func BenchmarkSecondLook(b *testing.B) {
	request := bytes.Repeat([]byte("x"), 200)
	for _, ask := range []bool{false, true} {
		name := "framing"
		if ask {
			name = "asking"
		}
		b.Run(name, func(b *testing.B) {
			server, s, client := sealed(b)
			into := make([]byte, 4096)
			b.ReportAllocs()
			for i := range b.N {
				if i%1024 == 0 { // the sealer's own cost is not the question
					b.StopTimer()
					s.later = s.later[:0]
					for range min(1024, b.N-i) {
						s.later = append(s.later, client.Seal(testkit.TLSData, request))
					}
					b.StartTimer()
				}
				s.next = s.later[i%1024]
				if n, ok, err := s.readStep(server, into); n != len(request) || !ok || err != nil {
					b.Fatal(n, ok, err)
				}
				if ask || !s.records.usedUp() {
					if _, ok, _ := s.readStep(server, into); ok {
						b.Fatal("something was left")
					}
				}
			}
		})
	}
}
