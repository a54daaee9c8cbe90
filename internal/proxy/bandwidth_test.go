//lint:file-ignore SA1019 x/net's client takes a connection that the test has made itself

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func withBandwidth(b *config.BandwidthLimit) func(*config.Rule) {
	return func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", BandwidthLimit: b}
	}
}

// pacer measures whether the machine keeps up: how late goroutines are woken, at most and altogether.
type pacer struct {
	most, late atomic.Int64
	stop       chan struct{}
}

func newPacer(t *testing.T) *pacer {
	p := &pacer{stop: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			begun := time.Now()
			select {
			case <-p.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			late := int64(time.Since(begun) - 5*time.Millisecond)
			p.most.Store(max(p.most.Load(), late))
			if late > int64(2*time.Millisecond) {
				p.late.Add(late)
			}
		}
	})
	t.Cleanup(func() { close(p.stop); wg.Wait() })
	return p
}

// check compares how long so many bytes took with a rate: they are never more than 5 % faster, and not more than 5 % slower where the machine has woken goroutines in time.
func (p *pacer) check(t *testing.T, bytes, rate int, took time.Duration) {
	t.Helper()
	want := time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
	if took < want*100/105 {
		t.Errorf("%d bytes took %v, want %v: too fast", bytes, took, want)
	}
	most, late := time.Duration(p.most.Load()), time.Duration(p.late.Load())
	switch {
	case took <= want*105/100:
	case most > 20*time.Millisecond, took <= want*105/100+late:
		t.Logf("%d bytes took %v, want %v; the machine was late by up to %v, and by %v altogether", bytes, took, want, most, late)
	default:
		t.Errorf("%d bytes took %v, want %v: too slow", bytes, took, want)
	}
}

// paced is a gateway whose backend speaks HTTP/1.1 or HTTP/2.
func paced(t *testing.T, backend2 bool, handle http.HandlerFunc, rule func(*config.Rule)) *gateway {
	g := startGateway(t, Timeouts{})
	if backend2 {
		addr, _ := h2cBackend(t, 0, handle)
		g.serveH2C(addr, rule)
	} else {
		g.serve(httpBackend(t, handle), rule)
	}
	return g
}

// client sends requests by HTTP/1.1, on a connection for each, or by HTTP/2 on one.
func (g *gateway) client(http2 bool) http.RoundTripper {
	if http2 {
		return g.http2Client("")
	}
	tr := &http.Transport{DisableCompression: true}
	g.t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func (g *gateway) newRequest(t *testing.T, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.addr()+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// eachSpoken runs a test by HTTP/1.1 and HTTP/2 on both sides.
func eachSpoken(t *testing.T, test func(t *testing.T, client2, backend2 bool)) {
	for _, client2 := range []bool{false, true} {
		for _, backend2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("client HTTP2 %v/backend HTTP2 %v", client2, backend2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				test(t, client2, backend2)
			})
		}
	}
}

// TestBandwidthResponse: the body of a response comes at the rate of its rule, whole and in order, whether its length is known or not.
func TestBandwidthResponse(t *testing.T) {
	t.Parallel()
	const rate, size = 64 << 10, 160 << 10
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i / 251)
	}
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for _, length := range []bool{false, true} {
			g := paced(t, backend2, func(w http.ResponseWriter, _ *http.Request) {
				if length {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				w.Write(body)
			}, withBandwidth(&config.BandwidthLimit{ResponseBytesPerSecond: rate}))
			client, p := g.client(client2), newPacer(t)
			begun := time.Now()
			resp, err := client.RoundTrip(g.newRequest(t, "GET", nil))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			p.check(t, size, rate, time.Since(begun))
			resp.Body.Close()
			if string(got) != string(body) || err != nil {
				t.Errorf("length %v: another body, %v", length, err)
			}
			if r := g.reasonsLogged(1); r[0] != "ok" {
				t.Errorf("logged %q", r)
			}
		}
	})
}

// TestBandwidthRequest: so it is with the body of a request, whether it comes with its head or not.
func TestBandwidthRequest(t *testing.T) {
	t.Parallel()
	const rate = 40 << 10
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for _, size := range []int{60 << 10, 100 << 10} { // the former may be there with its head
			for _, chunked := range []bool{false, true} {
				body := make([]byte, size)
				for i := range body {
					body[i] = byte(i / 251)
				}
				ended := make(chan time.Time, 1)
				g := paced(t, backend2, func(_ http.ResponseWriter, r *http.Request) {
					got, err := io.ReadAll(r.Body)
					ended <- time.Now()
					if string(got) != string(body) || err != nil {
						t.Errorf("another body of %d bytes, %v", len(got), err)
					}
				}, withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: rate}))
				p := newPacer(t)
				var reader io.Reader = strings.NewReader(string(body))
				if chunked {
					reader = io.MultiReader(reader)
				}
				client, req := g.client(client2), g.newRequest(t, "POST", reader)
				begun := time.Now() // and not when the handler runs, which may be late
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				p.check(t, size, rate, (<-ended).Sub(begun))
				if resp.StatusCode != 200 {
					t.Errorf("got %d", resp.StatusCode)
				}
				g.reasonsLogged(1)
				if line := g.log.String(); !strings.Contains(line, fmt.Sprintf(`"bytes_received":%d,`, size)) {
					t.Errorf("logged %s", line)
				}
			}
		}
	})
}

// TestBandwidthIsShared: streams of one rule have its rate together, and each about as much as the others; those of another rule on the same connection go on meanwhile, both ways.
func TestBandwidthIsShared(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const rate, streams, size = 64 << 10, 4, 40 << 10
	g := startGateway(t, Timeouts{})
	addr := httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, size))
	})
	slow, fast := anyRule(), anyRule()
	withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 8 << 10, ResponseBytesPerSecond: rate})(slow)
	fast.Matches[0].Path.Value = "/fast"
	g.apply(append(backend("Service/default/b/80", addr), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", slow, fast)))
	cc, p := g.http2Client(""), newPacer(t)
	var wg sync.WaitGroup
	var passed [streams]atomic.Int64
	var shares [streams]int64 // from when all have begun to when the first has ended
	var once sync.Once
	var under atomic.Int64
	begun := time.Now()
	for i := range streams {
		wg.Go(func() {
			resp, err := cc.RoundTrip(g.newRequest(t, "GET", nil))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			for buf := make([]byte, 4<<10); ; {
				n, err := resp.Body.Read(buf)
				if passed[i].Add(int64(n)) == int64(n) && n > 0 && under.Add(1) == streams {
					for j := range shares {
						atomic.StoreInt64(&shares[j], -passed[j].Load())
					}
				}
				if err != nil {
					break
				}
			}
			once.Do(func() {
				for j := range shares {
					atomic.AddInt64(&shares[j], passed[j].Load())
				}
			})
		})
	}
	wg.Go(func() { // an upload that takes long holds up nothing else either
		req := g.newRequest(t, "POST", strings.NewReader(strings.Repeat("u", 30<<10)))
		if resp, err := cc.RoundTrip(req); err != nil {
			t.Error(err)
		} else {
			resp.Body.Close()
		}
	})
	for range 20 {
		req := g.newRequest(t, "POST", strings.NewReader(strings.Repeat("f", 100<<10)))
		req.URL.Path = "/fast"
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		resp.Body.Close()
	}
	fastTook := time.Since(begun)
	sum := int64(0)
	for i := range passed {
		sum += passed[i].Load()
	}
	if sum >= streams*size { // none of it would be shown then
		t.Logf("the machine is slow: 20 requests took %v", fastTook)
	}
	wg.Wait()
	p.check(t, streams*size, rate, min(time.Since(begun), time.Duration(float64(streams*size)/rate*float64(time.Second))))
	most := int64(0)
	for i := range shares {
		most = max(most, atomic.LoadInt64(&shares[i]))
	}
	for i := range shares { // they differ by a few parts, and by when goroutines are woken
		if n := atomic.LoadInt64(&shares[i]); n < most/2 {
			t.Errorf("stream %d has got %d bytes while another has got %d", i, n, most)
		}
	}
}

// TestBandwidthIsNotIdle: what waits for its time is not idle, however long that takes.
func TestBandwidthIsNotIdle(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		const streams, size = 48, 200 // each waits for about 3 s between its parts
		g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Write(make([]byte, size))
		}, func(r *config.Rule) {
			withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 10, ResponseBytesPerSecond: 1 << 10})(r)
			r.Traffic.StreamIdleTimeoutNanos = int64(2 * time.Second)
		})
		client := g.client(client2)
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				method, body := "GET", ""
				if i%2 == 0 {
					method, body = "POST", strings.Repeat("b", size)
				}
				resp, err := client.RoundTrip(g.newRequest(t, method, strings.NewReader(body)))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
					t.Errorf("%d: %d bytes, %v", resp.StatusCode, n, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestBandwidthEnds: a body that waits for its time ends with its client, the request's time and the gateway.
func TestBandwidthEnds(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		change func(*config.Rule)
		end    func(*gateway, func())
	}{
		"client_closed":            {nil, func(_ *gateway, leave func()) { leave() }},
		"request_timeout":          {func(r *config.Rule) { r.RequestTimeoutNanos = int64(1500 * time.Millisecond) }, nil},
		"stream_duration_exceeded": {func(r *config.Rule) { r.Traffic.MaxStreamDurationNanos = int64(1500 * time.Millisecond) }, nil},
		"shutting_down": {nil, func(g *gateway, _ func()) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			g.Shutdown(ctx)
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
				for _, upload := range []bool{false, true} {
					g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
						io.Copy(io.Discard, r.Body)
						w.Write(make([]byte, 100<<10))
					}, func(r *config.Rule) {
						withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 10, ResponseBytesPerSecond: 1 << 10})(r)
						if c.change != nil {
							c.change(r)
						}
					})
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					req := g.newRequest(t, "GET", nil)
					if upload {
						req = g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", 100<<10)))
					}
					ended := make(chan struct{})
					var begun atomic.Bool
					client := g.client(client2)
					go func() {
						defer close(ended)
						resp, err := client.RoundTrip(req.WithContext(ctx))
						if err != nil {
							return
						}
						begun.Store(true)
						n, err := io.Copy(io.Discard, resp.Body)
						if resp.StatusCode == 200 && err == nil {
							t.Errorf("all %d bytes came", n)
						}
						resp.Body.Close()
					}()
					if c.end != nil {
						testkit.Eventually(t, "it is under way", func() bool {
							return upload && g.upstreams.Get("Service/default/b/80").Stats().InFlight == 1 || begun.Load()
						})
						c.end(g, leave)
					}
					<-ended
					if r := g.reasonsLogged(1); r[0] != reason {
						t.Errorf("upload %v: logged %q", upload, r)
					}
				}
			})
		})
	}
}

// TestBandwidthTrailers: a response tells by how much it and its request were held up, beside the fields that the backend has put behind it.
func TestBandwidthTrailers(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		for _, prefix := range []string{"", "slow"} {
			g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Trailer", "X-Sum")
				w.Write(make([]byte, 8<<10))
				w.Header().Set("X-Sum", "7")
			}, withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 8 << 10, ResponseBytesPerSecond: 16 << 10, TrailerPrefix: proto.String(prefix)}))
			resp, err := g.client(client2).RoundTrip(g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", 4<<10))))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.Trailer.Get("X-Sum") != "7" {
				t.Errorf("trailers %v", resp.Trailer)
			}
			if prefix != "" {
				prefix += "-"
			}
			for name, least := range map[string]int{"request-delay-ms": 430, "response-delay-ms": 430, "request-filter-delay-ms": 1, "response-filter-delay-ms": 1} {
				if ms, err := strconv.Atoi(resp.Trailer.Get(prefix + "bandwidth-" + name)); err != nil || ms < least {
					t.Errorf("%s%s: %d (%v), want %d at least", prefix, name, ms, err, least)
				}
			}
		}
	})
}

// TestBandwidthEdit: an edit of the rate changes that of what is under way, too, and nothing is left of a rule that is gone.
func TestBandwidthEdit(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const size = 64 << 10
	g := startGateway(t, Timeouts{})
	addr := httpBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) })
	g.serve(addr, withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 10, ResponseBytesPerSecond: 1 << 10}))
	c := g.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	g.serve(addr, withBandwidth(&config.BandwidthLimit{ResponseBytesPerSecond: 1 << 20}))
	if n, err := io.Copy(io.Discard, resp.Body); n != size-100 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if took := time.Since(begun); took > 30*time.Second { // it would be more than a minute
		t.Errorf("it took %v", took)
	}
	if n := g.compiler.Limiters(); n != 1 {
		t.Errorf("%d limiters are left of two", n)
	}
	g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"})
	if n := g.compiler.Limiters(); n != 0 {
		t.Errorf("%d limiters are left", n)
	}
}

// TestBandwidthAbandoned: bodies whose clients leave while they wait for their turn delay neither who has waited behind them nor who comes next.
func TestBandwidthAbandoned(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		const many, size = 120, 4 << 10 // of 64 parts each
		for _, upload := range []bool{false, true} {
			g := paced(t, backend2, func(w http.ResponseWriter, r *http.Request) {
				if n, _ := io.Copy(io.Discard, r.Body); n == 0 {
					w.Write(make([]byte, size))
				}
			}, withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 10, ResponseBytesPerSecond: 1 << 10}))
			client := g.client(client2)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var wg sync.WaitGroup
			var begun atomic.Int64
			for range many {
				req := g.newRequest(t, "GET", nil)
				if upload {
					req = g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", size)))
				}
				wg.Go(func() {
					resp, err := client.RoundTrip(req.WithContext(ctx))
					if err != nil {
						return
					}
					begun.Add(1)
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				})
			}
			testkit.Eventually(t, "all are under way", func() bool {
				return begun.Load() == many || upload && g.upstreams.Get("Service/default/b/80").Stats().InFlight == many
			})
			leave()
			wg.Wait()
			g.reasonsLogged(many)
			at := time.Now()
			req := g.newRequest(t, "POST", strings.NewReader(strings.Repeat("b", 64)))
			if !upload {
				req = g.newRequest(t, "GET", nil)
			}
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.ReadFull(resp.Body, make([]byte, 64))
			// Each of those had a part of 62.5 ms before it.
			if took := time.Since(at); took > many*50*time.Millisecond {
				t.Errorf("upload %v: the first part took %v", upload, took)
			}
			resp.Body.Close()
		}
	})
}

// TestBandwidthKeepsConnection: where the response comes before the gateway has sent all of a body that it has, the client's connection goes on.
func TestBandwidthKeepsConnection(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		io.Copy(io.Discard, r)
	}), withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 10}))
	c := g.dial()
	r := bufio.NewReader(c)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000\r\n\r\n"+strings.Repeat("b", 4000))
	for i := range 2 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil || resp.Close {
			t.Errorf("response %d: %q, %v, close %v", i, b, err, resp.Close)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
}

// TestScarceMemoryEndsPacedResponses: where memory is scarce, so many responses end that are held up as that asks for, and the others go on. Which ones has
// exchange.TestEndPaced: one that is just sending a part is not held up.
func TestScarceMemoryEndsPacedResponses(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(t *testing.T, client2, backend2 bool) {
		const limit, all, ended = 4 << 20, 6, 4 // of 80 KiB each, where 7 % of the limit are too much
		const size = 1 << 20
		const pacedAtLeast = 5 * time.Second // those that end
		var used atomic.Uint64
		g := startGatewayWith(t, Options{MemoryLimit: limit, memoryUsed: used.Load})
		handle := func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, size)) }
		rule := withBandwidth(&config.BandwidthLimit{ResponseBytesPerSecond: 8 << 10})
		if backend2 {
			addr, _ := h2cBackend(t, 0, handle)
			g.serveH2C(addr, rule)
		} else {
			g.serve(httpBackend(t, handle), rule)
		}
		client := g.client(client2)
		var broken [all]atomic.Bool
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range all {
			resp, err := client.RoundTrip(g.newRequest(t, "GET", nil).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 500)); err != nil { // more than passes at once: it has been held up by then
				t.Fatal(err)
			}
			wg.Go(func() {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				broken[i].Store(ctx.Err() == nil)
			})
		}
		g.stopSweeping()
		time.Sleep(pacedAtLeast)
		used.Store(limit / 100 * 92)
		g.sweepAt(time.Now(), false)
		g.eventually("some have broken off", func() bool {
			n := 0
			for i := range broken {
				if broken[i].Load() {
					n++
				}
			}
			return n >= ended
		})
		leave()
		wg.Wait()
		reasons := map[string]int{}
		for _, r := range g.reasonsLogged(all) {
			reasons[r]++
		}
		if reasons["overloaded"] != ended || reasons["client_closed"] != all-ended {
			t.Errorf("logged %v", reasons)
		}
	})
}
