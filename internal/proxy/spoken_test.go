package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// spoken is a request of HTTP/2 as a fuzzer makes it up; a response where it has a status.
type spoken struct {
	method, scheme, authority, path string
	status                          string
	stream                          uint32 // 0 is 1
	fields                          [][2]string
	trailer                         [2]string
	body                            []byte
	shape                           shape
}

// shape says how a request is cut into frames, and what is wrong with it.
type shape uint16

const (
	rightLength shape = 1 << iota // Content-Length is there
	wrongLength                   // and is one more than it should be
	noBody                        // END_STREAM with the head
	manyFrames                    // a frame for each byte of the body
	withTrailer                   // the trailer field is sent
	cancelled                     // RST_STREAM instead of the end
	pseudoLast                    // a field stands before the pseudo-header fields
	continued                     // header blocks are cut into CONTINUATION
	padded                        // frames have padding
	emptyEnd                      // END_STREAM on a frame of its own
	slow                          // head and body are not sent together
	endlessly                     // the stream does not end
	shortLength                   // Content-Length is one less than it should be
	lastShape
)

func (s *spoken) String() string {
	return fmt.Sprintf("%q %q %q %q %q, fields %q, trailer %q, body %q, shape %b", s.method, s.scheme, s.authority, s.path, s.status, s.fields, s.trailer, s.body, s.shape)
}

// lines is the header section.
func (s *spoken) lines() (all [][2]string) {
	all = [][2]string{{":method", s.method}, {":scheme", s.scheme}, {":authority", s.authority}, {":path", s.path}}
	if s.status != "" {
		all = [][2]string{{":status", s.status}}
	}
	pseudo := len(all)
	all = append(all, s.fields...)
	if n := s.length(); n >= 0 {
		all = append(all, [2]string{"content-length", fmt.Sprint(n)})
	}
	if s.shape&pseudoLast != 0 && len(s.fields) > 0 {
		all[0], all[pseudo] = all[pseudo], all[0]
	}
	return all
}

// length is what Content-Length says, -1 where it is not there.
func (s *spoken) length() int {
	switch n := len(s.body); {
	case s.shape&wrongLength != 0:
		return n + 1
	case s.shape&shortLength != 0 && n > 0:
		return n - 1
	case s.shape&rightLength != 0:
		return n
	}
	return -1
}

// wholeBody is the body of a request that a backend takes for whole.
func (s *spoken) wholeBody() []byte {
	switch {
	case s.shape&noBody != 0:
		return nil
	case s.shape&shortLength != 0 && s.length() >= 0:
		return s.body[:s.length()] // what is behind its end came too late for it
	}
	return s.body
}

// tooLarge is what would take long, and meet limits that are tested elsewhere.
func (s *spoken) tooLarge() bool {
	return len(s.String()) > 24<<10 || len(s.body) > 512 && s.shape&manyFrames != 0
}

// ends tells whether the stream is ended as it should be.
func (s *spoken) ends() bool { return s.shape&(cancelled|endlessly) == 0 }

// say sends the message on its stream, through framer and to flush.
func (s *spoken) say(fr *http2.Framer, flush func()) {
	s.stream = max(s.stream, 1)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	head := func(lines [][2]string, end bool) {
		block.Reset()
		for _, l := range lines {
			enc.WriteField(hpack.HeaderField{Name: l[0], Value: l[1]})
		}
		p := http2.HeadersFrameParam{StreamID: s.stream, EndStream: end, EndHeaders: true, BlockFragment: block.Bytes()}
		if s.shape&padded != 0 {
			p.PadLength = 7
		}
		if s.shape&continued == 0 {
			fr.WriteHeaders(p)
			return
		}
		rest := p.BlockFragment
		p.EndHeaders, p.BlockFragment = false, rest[:min(5, len(rest))]
		fr.WriteHeaders(p)
		fr.WriteContinuation(s.stream, true, rest[len(p.BlockFragment):])
	}
	trailer := s.shape&withTrailer != 0
	head(s.lines(), s.shape&noBody != 0 && s.ends())
	if s.shape&slow != 0 {
		flush()
	}
	if s.shape&noBody == 0 {
		s.sayBody(fr, s.ends() && !trailer)
		if trailer && s.ends() {
			head([][2]string{s.trailer}, true)
		}
	}
	if s.shape&cancelled != 0 {
		fr.WriteRSTStream(s.stream, http2.ErrCodeCancel)
	}
	flush()
}

func (s *spoken) sayBody(fr *http2.Framer, end bool) {
	size, apart := len(s.body), s.shape&emptyEnd != 0
	if s.shape&manyFrames != 0 {
		size = 1
	}
	for b := s.body; len(b) > 0; {
		n := min(size, len(b), 16<<10)
		last := end && n == len(b) && !apart
		if s.shape&padded != 0 {
			fr.WriteDataPadded(s.stream, last, b[:n], make([]byte, 3))
		} else {
			fr.WriteData(s.stream, last, b[:n])
		}
		b = b[n:]
	}
	if end && (apart || len(s.body) == 0) {
		fr.WriteData(s.stream, true, nil)
	}
}

// answered is what a client of HTTP/2 hears on its stream.
type answered struct {
	status  int // of the final response, 0 where none came
	interim []int
	fields  [][2]string
	body    []byte
	trailer [][2]string
	ended   bool // by END_STREAM; else the stream was reset, or the connection ended
}

// hear reads on until stream 1 ends.
func hear(t *testing.T, fr *http2.Framer) (a answered) {
	for {
		f, err := fr.ReadFrame()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatalf("the stream never ends: %+v", a)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
			return a
		case err != nil && strings.Contains(err.Error(), "connection reset"):
			return a
		case err != nil:
			t.Fatalf("the client hears what is malformed: %v, %v", err, fr.ErrorDetail())
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.LastStreamID < 1 {
				return a
			}
		case *http2.RSTStreamFrame:
			return a
		case *http2.MetaHeadersFrame:
			a.head(f)
		case *http2.DataFrame:
			a.body = append(a.body, f.Data()...)
			a.ended = f.StreamEnded()
			if n := len(f.Data()); n > 0 {
				fr.WriteWindowUpdate(0, uint32(n))
			}
		}
		if a.ended {
			return a
		}
	}
}

func (a *answered) head(f *http2.MetaHeadersFrame) {
	var status int
	fmt.Sscan(f.PseudoValue("status"), &status)
	var fields [][2]string
	for _, h := range f.RegularFields() {
		fields = append(fields, [2]string{h.Name, h.Value})
	}
	switch {
	case status >= 100 && status < 200:
		a.interim = append(a.interim, status)
	case status != 0:
		a.status, a.fields = status, fields
	default:
		a.trailer = fields
	}
	a.ended = f.StreamEnded()
}

// askHTTP2 says the request on a connection of its own, and returns what comes back.
func askHTTP2(t *testing.T, g *gateway, s *spoken) answered {
	c, err := net.Dial("tcp", g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	w := bufio.NewWriterSize(c, 128<<10)
	out, in := http2.NewFramer(w, nil), http2.NewFramer(c, bufio.NewReader(c))
	out.AllowIllegalWrites = true
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(w, http2.ClientPreface)
	out.WriteSettings()
	s.say(out, func() { w.Flush() })
	if !s.ends() {
		return answered{}
	}
	return hear(t, in)
}

// addSpoken makes seeds of requests.
func addSpoken(f *testing.F) {
	add := func(method, authority, path, name1, value1, name2, value2 string, body string, tname, tvalue string, sh shape) {
		f.Add(method, "http", authority, path, name1, value1, name2, value2, []byte(body), tname, tvalue, uint16(sh))
	}
	add("GET", "h", "/", "x-a", "1", "x-b", "2", "", "", "", noBody)
	add("GET", "h:80", "/guarded/../a?b=c", "x-role", "user", "cookie", "a=b", "", "", "", noBody)
	add("POST", "h", "/a", "x-role", "admin", "te", "trailers", "hello", "x-sum", "9", withTrailer)
	add("POST", "h", "/a", "content-type", "text/plain", "x-a", "", "hello", "", "", rightLength|manyFrames|emptyEnd)
	add("PUT", "h", "/guarded", "expect", "100-continue", "x-a", "1", "hello", "", "", rightLength|slow)
	add("POST", "h", "/", "x-a", "1", "x-b", "2", "0\r\n\r\nGET /guarded HTTP/1.1\r\nHost: h\r\n\r\n", "content-length", "3", withTrailer|slow|padded)
	add("POST", "h", "/", "transfer_encoding", "chunked", "x-b", "2", "hello", "", "", rightLength)
	add("POST", "h", "/", "content.length", "3", "x-b", "2", "hello", "set.cookie", "a=b", withTrailer)
	add("POST", "h", "/", "x.real.ip", "1.2.3.4", "x'b", "2", "hello", "x~forwarded~for", "1.2.3.4", withTrailer)
	add("POST", "h", "/", "x-a", "1\r\nTransfer-Encoding: chunked", "x\ny", "2", "hello", "", "", 0)
	add("DELETE", "h", "/%67uarded/%2e%2e/x", "x-forwarded-for", "1.2.3.4", "x_forwarded_host", "evil", "hello", "", "", wrongLength)
	add("POST", "h", "/", "x-a", "1", "x-b", "2", "hello", "", "", shortLength|slow|manyFrames)
	add("POST", "h", "/", "x-a", "1", "x-b", "2", "hello", "", "", cancelled|slow)
	add("POST", "h", "/", "x-a", "1", "x-b", "2", "hello", "", "", endlessly|rightLength)
	add("OPTIONS", "h", "*", "x-a", "1", "X-B", "2", "", "", "", noBody|continued|pseudoLast)
	add("CONNECT", "h:80", "", "x-a", "1", "x-b", "2", "hello", "", "", 0)
}
