package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// encodings are those that responses are compressed with, by their names.
var encodings = map[string]config.ContentEncoding{
	"gzip": config.ContentEncoding_CONTENT_ENCODING_GZIP,
	"br":   config.ContentEncoding_CONTENT_ENCODING_BROTLI,
	"zstd": config.ContentEncoding_CONTENT_ENCODING_ZSTD,
}

func withCompression(names ...string) func(*config.Rule) {
	c := &config.Compression{}
	for _, name := range names {
		c.Compressors = append(c.Compressors, &config.Compressor{Encoding: encodings[name], MinContentLength: 30})
	}
	return func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", Compression: c}
	}
}

// decoded reads what has an encoding, "" none.
func decoded(t testing.TB, encoding string, r io.Reader) io.Reader {
	switch encoding {
	case "":
		return r
	case "gzip":
		d, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		return d
	case "br":
		return brotli.NewReader(r)
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	t.Fatalf("encoding %q", encoding)
	return nil
}

// acceptWith is a request of a client that accepts some encodings.
func (g *gateway) acceptWith(t *testing.T, accept string) *http.Request {
	req := g.newRequest(t, "GET", nil)
	if accept != "" {
		req.Header.Set("Accept-Encoding", accept)
	}
	return req
}

// heldNothing waits until no response keeps an encoder.
func (g *gateway) heldNothing(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "no encoder is kept", func() bool { return g.engine.Encoders.Held() == 0 })
}

// TestCompressionRoundTrip: bodies of any size and kind, in pieces of any size, with a length and without, come out at the client as they were, whatever the encoding; so do those
// of clients that accept none, and the fields behind them.
func TestCompressionRoundTrip(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		type sent struct {
			body   []byte
			pieces []int
			length bool
		}
		bodies := map[string]sent{}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 12 {
			var s sent
			size := r.IntN(1 << (1 + r.IntN(19)))
			for len(s.body) < size {
				if i%4 == 0 {
					s.body = append(s.body, byte(r.Uint32()))
				} else {
					s.body = fmt.Appendf(s.body, "%d word ", r.IntN(500))
				}
			}
			s.length = i%3 == 0
			for left := len(s.body); left > 0; {
				n := min(1+r.IntN(len(s.body)/2+1), left)
				s.pieces = append(s.pieces, n)
				left -= n
			}
			bodies[fmt.Sprintf("/%d", i)] = s
		}
		g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
			if v, ok := r.Header["Accept-Encoding"]; ok {
				t.Errorf("the backend got Accept-Encoding %q", v)
			}
			s := bodies[r.URL.Path]
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			if s.length {
				w.Header().Set("Content-Length", strconv.Itoa(len(s.body)))
			} else {
				w.Header().Set("Trailer", "X-Sum")
			}
			at := 0
			for _, n := range s.pieces {
				w.Write(s.body[at : at+n])
				w.(http.Flusher).Flush()
				at += n
			}
			if !s.length {
				w.Header().Set("X-Sum", "7")
			}
		}, withCompression("gzip", "br", "zstd"))
		client := g.client(client2)
		for _, encoding := range []string{"gzip", "br", "zstd", ""} {
			for path, s := range bodies {
				req := g.acceptWith(t, encoding)
				req.URL.Path = path
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got := resp.Header.Get("Content-Encoding")
				if small := len(s.body) < 30; got != encoding && !(small && got == "") {
					t.Errorf("%s: %d bytes have the encoding %q", encoding, len(s.body), got)
				}
				body, err := io.ReadAll(decoded(t, got, resp.Body))
				if err != nil || !bytes.Equal(body, s.body) {
					t.Errorf("%s: %d bytes in %d pieces became %d, %v", encoding, len(s.body), len(s.pieces), len(body), err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil { // to the trailer section
					t.Error(err)
				}
				resp.Body.Close()
				if want := map[bool]string{false: "7"}[s.length]; resp.Trailer.Get("X-Sum") != want {
					t.Errorf("%s: trailers %v, want %q", encoding, resp.Trailer, want)
				}
			}
		}
		g.heldNothing(t)
		for _, reason := range g.reasonsLogged(4 * len(bodies)) {
			if reason != "ok" {
				t.Errorf("logged %q", reason)
			}
		}
	})
}

// TestCompressionHead has raw responses of a backend, and what becomes of their heads.
func TestCompressionHead(t *testing.T) {
	t.Parallel()
	const gzipped = "Accept-Encoding: gzip\r\n"
	body := strings.Repeat("all the same ", 10)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	chunked := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n", len(body), body)
	type fields map[string]string // "" is that there is none
	plain := fields{"Content-Encoding": "", "Content-Length": strconv.Itoa(len(body))}
	for _, tc := range []struct {
		name, request, response string
		want                    fields
		reads                   string // what the body is, decoded; "-" is body
	}{
		{"compressed", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nContent-MD5: x\r\nRepr-Digest: y\r\nVary: Origin\r\n" + length + "\r\n" + body,
			fields{"Content-Encoding": "gzip", "Etag": `W/"a"`, "Accept-Ranges": "", "Content-Md5": "", "Repr-Digest": "", "Vary": "Origin, Accept-Encoding", "Transfer-Encoding": ""}, "-"},
		{"an error", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n" + length + "\r\n" + body, fields{"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}, "-"},
		{"POST", "POST / HTTP/1.1\r\nContent-Length: 0\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + length + "\r\n" + body, fields{"Content-Encoding": "gzip"}, "-"},
		{"not accepted", "GET / HTTP/1.1\r\nAccept-Encoding: gzip;q=0\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"a\"\r\n" + length + "\r\n" + body,
			fields{"Content-Encoding": "", "Content-Length": strconv.Itoa(len(body)), "Etag": `"a"`, "Vary": "Accept-Encoding"}, "-"},
		{"nothing said", "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + length + "\r\n" + body, fields{"Content-Encoding": "", "Vary": "Accept-Encoding"}, "-"},
		{"chunked", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + chunked + "\r\n", fields{"Content-Encoding": "gzip"}, "-"},
		{"digest in the trailer", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + chunked + "Content-Digest: x\r\nX-Sum: 7\r\n\r\n",
			fields{"Content-Encoding": "gzip", "trailer X-Sum": "7", "trailer Content-Digest": ""}, "-"},
		{"until the end", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body, fields{"Content-Encoding": "gzip"}, "-"},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + chunked + "\r\n", fields{"Content-Encoding": "gzip", "Transfer-Encoding": ""}, "-"},
		{"too short", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 29\r\n\r\n" + body[:29], fields{"Content-Encoding": "", "Vary": "", "Content-Length": "29"}, body[:29]},
		{"long enough", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 30\r\n\r\n" + body[:30], fields{"Content-Encoding": "gzip"}, body[:30]},
		{"another type", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n" + length + "\r\n" + body, plain, "-"},
		{"no type", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\n" + length + "\r\n" + body, plain, "-"},
		{"encoded already", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: x\r\n" + length + "\r\n" + body, fields{"Content-Encoding": "x", "Vary": ""}, "-"},
		{"no-transform", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-transform\r\n" + length + "\r\n" + body, plain, "-"},
		{"206", "GET / HTTP/1.1\r\nRange: bytes=0-129\r\n" + gzipped, "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-129/500\r\n" + length + "\r\n" + body, plain, "-"},
		{"204", "GET / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n", fields{"Content-Encoding": "", "Vary": ""}, ""},
		{"304", "GET / HTTP/1.1\r\nIf-None-Match: W/\"a\"\r\n" + gzipped, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nContent-Length: 5000\r\n\r\n",
			fields{"Content-Encoding": "", "Content-Length": "", "Accept-Ranges": "", "Vary": "Accept-Encoding", "Etag": `W/"a"`}, ""},
		{"304 of what is not compressed", "GET / HTTP/1.1\r\nIf-None-Match: \"a\"\r\n" + gzipped, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", fields{"Vary": "Accept-Encoding", "Etag": `"a"`}, ""},
		{"HEAD", "HEAD / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n" + length + "\r\n",
			fields{"Content-Encoding": "gzip", "Content-Length": "", "Etag": `W/"a"`, "Accept-Ranges": "", "Vary": "Accept-Encoding"}, ""},
		{"HEAD of a short one", "HEAD / HTTP/1.1\r\n" + gzipped, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 29\r\n\r\n", fields{"Content-Encoding": "", "Content-Length": "29"}, ""},
		{"HEAD not accepted", "HEAD / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + length + "\r\n", fields{"Content-Encoding": "", "Content-Length": strconv.Itoa(len(body)), "Vary": "Accept-Encoding"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				if head, err := readHead(r); err != nil || strings.Contains(strings.ToLower(head), "accept-encoding") {
					t.Errorf("the backend got %q, %v", head, err)
				}
				io.WriteString(c, tc.response)
				c.Close()
			}), withCompression("gzip"))
			c := g.dial()
			method, _, _ := strings.Cut(tc.request, " ")
			io.WriteString(c, tc.request+"Host: h\r\n\r\n")
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			want := tc.reads
			if want == "-" {
				want = body
			}
			if want != "" {
				got, err := io.ReadAll(decoded(t, strings.TrimPrefix(resp.Header.Get("Content-Encoding"), "x"), resp.Body))
				if string(got) != want || err != nil {
					t.Errorf("body %q, %v", got, err)
				}
			}
			if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
				t.Errorf("%q follows, %v", rest, err)
			}
			if len(resp.TransferEncoding) > 0 {
				resp.Header.Set("Transfer-Encoding", resp.TransferEncoding[0])
			}
			for name, value := range tc.want {
				got := strings.Join(resp.Header.Values(name), "|")
				if trailer, ok := strings.CutPrefix(name, "trailer "); ok {
					got = resp.Trailer.Get(trailer)
				}
				if got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
			if reason := g.reasonsLogged(1); reason[0] != "ok" {
				t.Errorf("logged %q", reason)
			}
		})
	}
}

// TestCompressionHeldBackByNothing: a body that comes in pieces is passed on with each of them, and goes on after it was silent for long. While it is, gzip keeps no encoder by HTTP/2.
func TestCompressionHeldBackByNothing(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for _, encoding := range []string{"gzip", "br", "zstd", ""} {
			next := make(chan string)
			g := paced(t, backend2, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if encoding == "" {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				for event := range next {
					io.WriteString(w, event)
					w.(http.Flusher).Flush()
				}
			}, withCompression("gzip", "br", "zstd"))
			accept := encoding
			if accept == "" {
				accept = "gzip" // which an event stream does not get
			}
			resp, err := g.client(client2).RoundTrip(g.acceptWith(t, accept)) // the head comes before anything of the body
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.Header.Get("Content-Encoding"); got != encoding {
				t.Fatalf("encoding %q, want %q", got, encoding)
			}
			var body io.Reader
			for i := range 5 {
				event := fmt.Sprintf("data: %d\n\n", i)
				next <- event
				if body == nil {
					body = decoded(t, encoding, resp.Body)
				}
				got := make([]byte, len(event))
				if _, err := io.ReadFull(body, got); err != nil || string(got) != event {
					t.Fatalf("%s: event %d is %q, %v", encoding, i, got, err)
				}
				if i == 2 && encoding == "gzip" && client2 && backend2 {
					g.heldNothing(t) // so it was suspended
				}
			}
			close(next)
			if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
				t.Errorf("%s: in the end %q, %v", encoding, rest, err)
			}
			resp.Body.Close()
			if reason := g.reasonsLogged(1); reason[0] != "ok" {
				t.Errorf("%s: logged %q", encoding, reason)
			}
			g.heldNothing(t)
		}
	})
}

// TestCompressionBreaksOff: a body that its backend breaks off has no end at the client either.
func TestCompressionBreaksOff(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for encoding := range encodings {
			for _, length := range []bool{false, true} {
				read := make(chan struct{})
				g := paced(t, backend2, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/plain")
					if length {
						w.Header().Set("Content-Length", "100000")
					}
					io.WriteString(w, strings.Repeat("the first part ", 100))
					w.(http.Flusher).Flush()
					<-read
					panic(http.ErrAbortHandler)
				}, withCompression(encoding))
				resp, err := g.client(client2).RoundTrip(g.acceptWith(t, encoding))
				if err != nil {
					t.Fatal(err)
				}
				body := decoded(t, encoding, resp.Body)
				if _, err := io.ReadFull(body, make([]byte, 1500)); err != nil {
					t.Fatal(err)
				}
				close(read)
				if rest, err := io.ReadAll(body); len(rest) > 0 || err == nil {
					t.Errorf("%s: %q follows, %v", encoding, rest, err)
				}
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Errorf("%s: the message has an end", encoding)
				}
				resp.Body.Close()
				if reason := g.reasonsLogged(1); reason[0] != "upstream_truncated" {
					t.Errorf("%s: logged %q", encoding, reason)
				}
				g.heldNothing(t)
			}
		}
	})
}

// TestCompressionClientLeaves: a client that leaves ends the response, and its encoder is free.
func TestCompressionClientLeaves(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for encoding := range encodings {
			ended := make(chan struct{})
			g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.Header().Set("Content-Type", "text/plain")
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}, withCompression(encoding))
			ctx, leave := context.WithCancel(t.Context())
			resp, err := g.client(client2).RoundTrip(g.acceptWith(t, encoding).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(decoded(t, encoding, resp.Body), make([]byte, 200<<10)); err != nil {
				t.Fatal(err)
			}
			leave()
			resp.Body.Close()
			<-ended
			if reason := g.reasonsLogged(1); reason[0] != "client_closed" {
				t.Errorf("%s: logged %q", encoding, reason)
			}
			g.heldNothing(t)
		}
	})
}

// TestCompressionOfMany: where no more encoders may be kept the next encoding is chosen that the client accepts and needs none.
func TestCompressionOfMany(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	release := make(chan struct{})
	g := paced(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, strings.Repeat("a part ", 10))
		w.(http.Flusher).Flush()
		<-release
	}, withCompression("br", "zstd", "gzip"))
	client := g.client(true)
	got := map[string]int{}
	var open []*http.Response
	for range 100 {
		resp, err := client.RoundTrip(g.acceptWith(t, "br, zstd, gzip"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
		got[resp.Header.Get("Content-Encoding")]++
	}
	held := g.engine.Encoders.Held()
	if got["br"] < 10 || got["gzip"] < 1 || got["br"]+got["zstd"]+got["gzip"] != 100 || held > 64<<20 {
		t.Errorf("encodings %v, %d bytes are held", got, held)
	}
	close(release)
	for _, resp := range open {
		body, err := io.ReadAll(decoded(t, resp.Header.Get("Content-Encoding"), resp.Body))
		if string(body) != strings.Repeat("a part ", 10) || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		resp.Body.Close()
	}
	g.heldNothing(t)
	g.reasonsLogged(100)
	var scraped bytes.Buffer
	for _, s := range g.engine.Encoders.Stats() {
		fmt.Fprintln(&scraped, s.Encoding, s.Responses, s.In)
		if n := got[s.Encoding.String()]; s.Responses != uint64(n) || s.In != uint64(70*n) || n > 0 && s.Out == 0 {
			t.Errorf("%d responses have %v, counted %+v", n, s.Encoding, s)
		}
	}
	if refused := g.engine.Encoders.Stats()[1].Refused; refused == 0 {
		t.Errorf("nothing was refused: %s", &scraped)
	}
}

// TestCompressionWithBandwidth: what is held up is what is sent.
func TestCompressionWithBandwidth(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		body := []byte(strings.Repeat("it becomes much shorter ", 20<<10)) // at the rate below it would take a minute
		g := paced(t, backend2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Write(body)
		}, func(r *config.Rule) {
			withCompression("gzip")(r)
			r.Traffic.BandwidthLimit = &config.BandwidthLimit{ResponseBytesPerSecond: 8 << 10}
		})
		resp, err := g.client(client2).RoundTrip(g.acceptWith(t, "gzip"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(decoded(t, resp.Header.Get("Content-Encoding"), resp.Body))
		if !bytes.Equal(got, body) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		resp.Body.Close()
		g.reasonsLogged(1)
		if line := g.log.String(); !strings.Contains(line, `"content_encoding":"gzip"`) || strings.Contains(line, fmt.Sprintf(`"bytes_sent":%d,`, len(body))) {
			t.Errorf("logged %s", line)
		}
	})
}

// TestCompressionIsUpToTheRule: the rules of others pass Accept-Encoding on, and responses as they are.
func TestCompressionIsUpToTheRule(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := paced(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Accepted", r.Header.Get("Accept-Encoding"))
		io.WriteString(w, strings.Repeat("as it is ", 10))
	}, nil)
	resp, err := g.client(false).RoundTrip(g.acceptWith(t, "gzip, br"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if string(body) != strings.Repeat("as it is ", 10) || err != nil || resp.Header.Get("X-Accepted") != "gzip, br" || resp.Header.Get("Vary") != "" {
		t.Errorf("%q, %v, %v", body, resp.Header, err)
	}
}

// BenchmarkCompression measures a GET of 64 KiB of text that is compressed, and one whose rule has it and whose client does not.
func BenchmarkCompression(b *testing.B) {
	for _, accept := range []string{"", "gzip", "br", "zstd"} {
		b.Run("accept="+accept, func(b *testing.B) {
			g := startGateway(b, Timeouts{})
			g.serve(cannedBackend(b, cannedResponse(64<<10), 0), withCompression("gzip", "br", "zstd"))
			c := g.dial()
			request, buf := []byte("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: "+accept+"\r\n\r\n"), make([]byte, 256<<10)
			size := encodedSize(b, c, request, buf)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, request, buf, size)
			}
		})
	}
}

// encodedSize is how long the response to a request is, which has a length.
func encodedSize(t testing.TB, c net.Conn, request, buf []byte) int {
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		if err != nil {
			t.Fatal(err)
		}
		have += n
		head, _, whole := bytes.Cut(buf[:have], []byte("\r\n\r\n"))
		if !whole {
			continue
		}
		_, length, ok := strings.Cut(string(head), "Content-Length: ")
		if !ok {
			t.Fatalf("no length: %s", head)
		}
		length, _, _ = strings.Cut(length, "\r\n")
		body, err := strconv.Atoi(length)
		if err != nil {
			t.Fatal(err)
		}
		if all := len(head) + 4 + body; have >= all {
			return all
		}
	}
}

// TestCompressionOfAnswers: an answer of the gateway's is compressed where that makes it shorter.
func TestCompressionOfAnswers(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	long, short := strings.Repeat("you may not see this ", 100), "abcdefghijklmnopqrstuvwxyz0123456789"
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusForbidden)
		if r.URL.Path == "/long" {
			io.WriteString(w, long)
		} else {
			io.WriteString(w, short)
		}
	})))
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { t.Error("the backend was asked") }), func(r *config.Rule) {
		withCompression("gzip", "br", "zstd")(r)
		guardedBy(t, &config.ExternalAuth{Backend: authKey})(r)
	})
	for encoding := range encodings {
		for path, want := range map[string]string{"/long": long, "/short": short} {
			req := g.acceptWith(t, encoding)
			req.URL.Path = path
			resp, err := g.client(false).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			expected := encoding
			if path == "/short" {
				expected = ""
			}
			got := resp.Header.Get("Content-Encoding")
			if resp.StatusCode != http.StatusForbidden || got != expected || resp.Header.Get("Vary") != "Accept-Encoding" || resp.ContentLength < 1 || resp.ContentLength >= int64(len(long)) {
				t.Errorf("%s, %s: %v", path, encoding, resp)
			}
			if body, err := io.ReadAll(decoded(t, got, resp.Body)); string(body) != want || err != nil {
				t.Errorf("%s %s: %q, %v", path, encoding, body, err)
			}
			resp.Body.Close()
		}
	}
}
