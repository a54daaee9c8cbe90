package resolve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/dnsserver"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestFind(t *testing.T) {
	s := dnsserver.Start(t)
	s.Set(t, "both.example.com", "both.example.com. 60 IN A 192.0.2.2", "both.example.com. 30 IN A 192.0.2.1", "both.example.com. 10 IN AAAA 2001:db8::1")
	s.Set(t, "six.example.com", "six.example.com. 60 IN AAAA 2001:db8::2", "six.example.com. 60 IN AAAA 2001:db8::1")
	s.Set(t, "alias.example.com", "c.example.com. 300 IN A 192.0.2.3", "b.example.com. 7 IN CNAME c.example.com.", "alias.example.com. 300 IN CNAME B.example.com.", "x.example.com. 300 IN A 192.0.2.99")
	s.Set(t, "loop.example.com", "loop.example.com. 60 IN CNAME b.example.com.", "b.example.com. 60 IN CNAME loop.example.com.")
	s.Set(t, "text.example.com", `text.example.com. 60 IN TXT "a"`)
	s.Fail("broken.example.com", dns.RcodeServerFailure)
	c := &client{servers: []netip.AddrPort{s.Addr()}}
	for _, test := range []struct {
		host string
		want []netip.Addr
		ttl  time.Duration
		err  string
	}{
		{"both.example.com", addrs("192.0.2.1", "192.0.2.2"), 30 * time.Second, ""},
		{"six.example.com", addrs("2001:db8::1", "2001:db8::2"), time.Minute, ""},
		{"alias.example.com", addrs("192.0.2.3"), 7 * time.Second, ""},
		{"loop.example.com", nil, 0, "DNS has no address of loop.example.com"},
		{"text.example.com", nil, 0, "DNS has no address of text.example.com"},
		{"none.example.com", nil, 0, "DNS has no name none.example.com (NXDOMAIN)"},
		{"broken.example.com", nil, 0, "DNS server " + s.Addr().String() + ": it answers SERVFAIL"},
	} {
		for _, narrow := range []bool{false, true} {
			s.Narrow(narrow)
			got, err := c.find(t.Context(), test.host, PreferIPv4)
			if !slices.Equal(got.addresses, test.want) || got.ttl != test.ttl || textOf(err) != test.err {
				t.Errorf("%s, by TCP %v: %v for %s, %v", test.host, narrow, got.addresses, got.ttl, err)
			}
		}
	}
	s.Narrow(false)

	refusing := netip.MustParseAddrPort("127.0.0.1:1")
	c.servers = []netip.AddrPort{refusing, s.Addr()}
	if got, err := c.find(t.Context(), "both.example.com", PreferIPv4); err != nil || len(got.addresses) != 2 {
		t.Errorf("behind a server that is not there: %v, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	c = &client{file: file}
	if _, err := c.find(t.Context(), "a.example.com", PreferIPv4); err == nil || !strings.Contains(err.Error(), "the servers of DNS are not known") {
		t.Errorf("without resolv.conf: %v", err)
	}
	if err := os.WriteFile(file, []byte("search example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.find(t.Context(), "a.example.com", PreferIPv4); err == nil || !strings.Contains(err.Error(), "names no DNS server") {
		t.Errorf("without servers: %v", err)
	}
	if err := os.WriteFile(file, []byte("nameserver 192.0.2.53\nnameserver 2001:db8::53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if servers, err := c.list(); err != nil || !slices.Equal(servers, []string{"192.0.2.53:53", "[2001:db8::53]:53"}) {
		t.Errorf("servers %v, %v", servers, err)
	}
}

// TestOtherAnswers: what is not an answer to the question is none.
func TestOtherAnswers(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("a.example.com.", dns.TypeA)
	m.Response = true
	rr, err := dns.NewRR("a.example.com. 60 IN A 192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	m.Answer = []dns.RR{rr}
	if got, err := read(m, "A.Example.com", dns.TypeA); err != nil || len(got.addresses) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for name, change := range map[string]func(*dns.Msg){
		"another name":   func(m *dns.Msg) { m.Question[0].Name = "b.example.com." },
		"another type":   func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"no question":    func(m *dns.Msg) { m.Question = nil },
		"a question":     func(m *dns.Msg) { m.Response = false },
		"another record": func(m *dns.Msg) { m.Answer[0].Header().Name = "b.example.com." },
		"another class":  func(m *dns.Msg) { m.Answer[0].Header().Class = dns.ClassCHAOS },
	} {
		other := m.Copy()
		change(other)
		if got, err := read(other, "a.example.com", dns.TypeA); err == nil || len(got.addresses) != 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestTogether(t *testing.T) {
	v4, v6 := found{addresses: addrs("192.0.2.1"), ttl: time.Second}, found{addresses: addrs("2001:db8::1"), ttl: time.Second}
	absent, failed := &absentError{host: "a"}, errors.New("failed")
	for name, test := range map[string]struct {
		err4, err6 error
		want       []netip.Addr
		err        error
	}{
		"both":                   {nil, nil, v4.addresses, nil},
		"IPv4 alone":             {nil, absent, v4.addresses, nil},
		"IPv4, and who knows":    {nil, failed, v4.addresses, nil},
		"IPv6 alone":             {absent, nil, v6.addresses, nil},
		"IPv6, and IPv4 unknown": {failed, nil, nil, failed},
		"nothing":                {absent, absent, nil, absent},
		"IPv6 unknown":           {absent, failed, nil, failed},
		"both unknown":           {failed, failed, nil, failed},
	} {
		if got, err := together(v4, v6, test.err4, test.err6); !slices.Equal(got.addresses, test.want) || err != test.err {
			t.Errorf("%s: %v, %v", name, got.addresses, err)
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// answers collects what a watcher is given.
type answers struct {
	mu  sync.Mutex
	all []string
}

func (l *answers) answer(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.TrimSpace(fmt.Sprintf("%v %s", a.Addresses, textOf(a.Err))))
}

func (l *answers) take() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, l.all = l.all, nil
	return all
}

// TestWatch: a host is asked for again when its TTL is over, within bounds; a failure leaves what was known, and a name that is gone nothing; who watches is told what
// has changed, once; nobody is asked for a host that nobody watches.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var next struct {
			found
			err error
		}
		asked := 0
		r := New(Options{})
		r.find = func(_ context.Context, host string, _ Family) (found, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return found{addresses: slices.Clone(next.addresses), ttl: next.ttl}, next.err
		}
		now := func(err error, ttl time.Duration, addresses ...string) {
			mu.Lock()
			defer mu.Unlock()
			next.found, next.err = found{addresses: addrs(addresses...), ttl: ttl}, err
		}
		askedSince := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			n, asked = asked, 0
			return n
		}
		after := func(d time.Duration, l *answers, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := l.take(); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		var first, second answers
		now(nil, time.Minute, "192.0.2.1")
		stop := r.Watch("ns", "a", first.answer)
		after(0, &first, "[192.0.2.1]")
		stopSecond := r.Watch("ns", "a", second.answer)
		after(0, &second, "[192.0.2.1]")
		if n := askedSince(); n != 1 {
			t.Errorf("two watchers asked %d times", n)
		}
		after(time.Minute-time.Second, &first)
		now(nil, 0, "192.0.2.1", "192.0.2.2")
		after(10*time.Second, &first, "[192.0.2.1 192.0.2.2]")
		after(0, &second, "[192.0.2.1 192.0.2.2]")
		askedSince()
		after(time.Minute, &first) // of a TTL of 0 it is asked at most each 5 s, and the same is not told again
		if n := askedSince(); n < 10 || n > 12 {
			t.Errorf("asked %d times in a minute for a TTL of 0", n)
		}
		now(errors.New("lost"), 0)
		after(10*time.Second, &first, "[192.0.2.1 192.0.2.2] lost")
		askedSince()
		after(10*time.Minute, &first)
		if n := askedSince(); n < 15 || n > 25 {
			t.Errorf("asked %d times in ten minutes of failures", n)
		}
		now(nil, 1000*time.Hour, "192.0.2.1", "192.0.2.2")
		after(time.Minute, &first, "[192.0.2.1 192.0.2.2]")
		now(&absentError{host: "a", name: true}, 0)
		after(2*time.Hour, &first, "[] DNS has no name a (NXDOMAIN)")
		now(nil, time.Minute, "192.0.2.3")
		after(time.Minute, &first, "[192.0.2.3]")

		second.take()
		stop()
		stop()
		now(nil, time.Minute, "192.0.2.4")
		after(5*time.Minute, &second, "[192.0.2.4]")
		after(0, &first)
		stopSecond()
		synctest.Wait()
		askedSince()
		time.Sleep(time.Hour)
		if n := askedSince(); n != 0 {
			t.Errorf("asked %d times for nobody", n)
		}
		// Again from the beginning.
		defer r.Watch("ns", "a", first.answer)()
		after(0, &first, "[192.0.2.4]")
		r.Close()
		defer r.Watch("ns", "b", first.answer)()
		after(time.Hour, &first)
	})
}

// FuzzRead: whatever a server answers, only addresses come out of it.
func FuzzRead(f *testing.F) {
	m := new(dns.Msg)
	m.SetQuestion("a.example.com.", dns.TypeA)
	m.Response = true
	for _, record := range []string{"a.example.com. 60 IN CNAME b.example.com.", "b.example.com. 60 IN A 192.0.2.1"} {
		rr, err := dns.NewRR(record)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	packed, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil {
			return
		}
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			got, err := read(m, "a.example.com", kind)
			if (err == nil) != (len(got.addresses) > 0) {
				t.Fatalf("%v, %v", got, err)
			}
			for _, a := range got.addresses {
				if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
					t.Fatalf("address %v", a)
				}
			}
			if got.ttl < 0 {
				t.Fatalf("TTL %s", got.ttl)
			}
		}
	})
}

// silence is that no server has answered.
type silence struct{ error }

func (silence) Timeout() bool   { return true }
func (silence) Temporary() bool { return true }

// TestSilentHosts: hosts about which nobody answers hold up those of other namespaces neither nor for ever those of their own, and are asked for more and more seldom.
func TestSilentHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		r := New(Options{})
		defer r.Close()
		r.find = func(ctx context.Context, host string, _ Family) (found, error) {
			mu.Lock()
			asked[host]++
			n := asked[host]
			mu.Unlock()
			if strings.HasPrefix(host, "silent") || host == "late" && n > 1 {
				select {
				case <-time.After(2 * askTimeout):
				case <-ctx.Done():
				}
				return found{}, silence{errors.New("i/o timeout")}
			}
			return found{addresses: addrs("192.0.2.1"), ttl: time.Hour}, nil
		}
		for i := range 500 {
			defer r.Watch("bad", fmt.Sprint("silent", i), func(Answer) {})()
		}
		synctest.Wait()
		var good, own, late answers
		defer r.Watch("good", "silent0", func(Answer) {})() // which another namespace has too
		defer r.Watch("good", "a", good.answer)()
		synctest.Wait()
		if got := good.take(); len(got) != 1 {
			t.Errorf("another namespace is told %q", got)
		}
		defer r.Watch("bad", "b", own.answer)()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := own.take(); len(got) != 1 {
			t.Errorf("the same namespace is told %q", got)
		}
		r2 := New(Options{})
		defer r2.Close()
		r2.find = r.find
		mu.Lock()
		clear(asked)
		mu.Unlock()
		defer r2.Watch("ns", "silent", func(Answer) {})()
		defer r2.Watch("ns", "late", late.answer)()
		time.Sleep(time.Hour + 30*time.Minute) // an hour of silence about both
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if n := asked["silent"]; n < 35 || n > 55 {
			t.Errorf("asked %d times for a host without addresses", n)
		}
		if n := asked["late"]; n < 35 || n > 80 { // after its hour
			t.Errorf("asked %d times for a host with addresses", n)
		}
	})
}

// TestLateWatcher: who begins to watch a host that is known is told of it at once, also while a question about it is under way.
func TestLateWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		n := 0
		r.find = func(ctx context.Context, _ string, _ Family) (found, error) {
			if n++; n > 1 {
				<-ctx.Done()
			}
			return found{addresses: addrs("192.0.2.1"), ttl: 0}, nil
		}
		var first, second answers
		defer r.Watch("ns", "a", first.answer)()
		time.Sleep(time.Minute) // the second question is under way
		defer r.Watch("ns", "a", second.answer)()
		synctest.Wait()
		if got := second.take(); len(got) != 1 || n != 2 {
			t.Errorf("told %q after %d questions", got, n)
		}
	})
}

// TestPanics: a panic in a question, in one half of it or in a watcher is reported, and the host is asked for again.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := 0
		r := New(Options{Panicked: func(string, any) { panics++ }})
		defer r.Close()
		n := 0
		r.find = func(context.Context, string, Family) (found, error) {
			if n++; n == 1 {
				panic("question")
			}
			return found{addresses: addrs("192.0.2.1"), ttl: time.Hour}, nil
		}
		var l answers
		defer r.Watch("ns", "a", func(a Answer) {
			if l.answer(a); a.Err != nil {
				panic("watcher")
			}
		})()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := l.take(); len(got) != 2 || got[0] != "[] internal error, see the log" || got[1] != "[192.0.2.1]" || panics != 2 || r.asking.active != 0 {
			t.Errorf("told %q, %d panics, %d places are held", got, panics, r.asking.active)
		}
	})
	panics := 0
	c := &client{servers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}, panicked: func(string, any) { panics++ }}
	c.query = func(_ context.Context, _, host string, kind uint16) (*dns.Msg, error) {
		if kind == dns.TypeAAAA {
			panic("half")
		}
		return nil, errors.New("no answer")
	}
	if _, err := c.find(t.Context(), "a", PreferIPv4); err == nil || panics != 1 {
		t.Errorf("%v, %d panics", err, panics)
	}
}

// TestLines: errors that differ in ports of ours alone are logged once, and of a host that changes its mind with each answer a few lines are.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b testkit.Log
		var count atomic.Int64
		var flaps atomic.Bool
		r := New(Options{Logger: slog.New(slog.NewTextHandler(&b, nil))})
		r.find = func(context.Context, string, Family) (found, error) {
			n := int(count.Add(1))
			if flaps.Load() && n%2 == 0 {
				return found{addresses: addrs("192.0.2.1"), ttl: 0}, nil
			}
			return found{}, fmt.Errorf("DNS server 192.0.2.%d:53: %w", n%4, &net.OpError{Op: "read", Net: "udp",
				Source: &net.UDPAddr{Port: 40000 + n}, Err: os.NewSyscallError("read", syscall.ECONNREFUSED)})
		}
		var l answers
		stop := r.Watch("ns", "a", l.answer)
		time.Sleep(time.Hour)
		synctest.Wait()
		if lines := strings.Count(b.String(), "\n"); lines != 1 || count.Load() < 100 || len(l.take()) != 1 {
			t.Errorf("%d lines of %d failures: %s", lines, count.Load(), b.String())
		}
		flaps.Store(true)
		time.Sleep(time.Hour)
		stop()
		r.Close()
		if lines := strings.Count(b.String(), "\n"); lines > 1+7*maxLines {
			t.Errorf("%d lines in an hour", lines)
		}
	})
}

// TestAskEnds: the end of a context ends a question to a server that does not answer.
func TestAskEnds(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		silent.ReadFrom(make([]byte, udpSize)) //nolint:errcheck // the question has come
		cancel()
	}()
	if _, err := query(ctx, silent.LocalAddr().String(), "a.example.com", dns.TypeA); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
