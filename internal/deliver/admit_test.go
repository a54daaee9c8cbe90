package deliver

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// peers accepts what Admit lets in, on loopback, where each 127.0.0.x is an address of its own.
type peers struct {
	*Remote
	t        *testing.T
	listener net.Listener

	mu   sync.Mutex
	open []net.Conn // at the server
}

func newPeers(t *testing.T, patience time.Duration) *peers {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peers{Remote: NewRemote(RemoteOptions{}), t: t}
	p.listener = p.admit(l, patience)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.open = append(p.open, c)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range p.open {
			c.Close()
		}
		if a := p.admission.Load(); len(a.addresses)+len(a.byPeer)+a.strangers > 0 {
			t.Errorf("with no connection left: %d addresses, %d connections, %d without identity", len(a.addresses), len(a.byPeer), a.strangers)
		}
	})
	return p
}

// dial connects from an address, and waits until the server has decided.
func (p *peers) dial(from string) net.Conn {
	p.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return c
}

// admitted waits until the server holds that many connections, now and then.
func (p *peers) counts(open, strangers int) bool {
	a := p.admission.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byPeer) == open && a.strangers == strangers
}

// ended reports that the server closes a connection, within a minute.
func (p *peers) ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return errors.Is(err, io.EOF) || err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// TestAdmissionByAddress: one address has so many connections without an identity, and so many with one; another address is
// not concerned.
func TestAdmissionByAddress(t *testing.T) {
	p := newPeers(t, time.Hour)
	for range maxStrangers {
		p.dial("127.0.0.2")
	}
	testkit.Eventually(t, "the first ones are let in", func() bool { return p.counts(maxStrangers, maxStrangers) })
	if !p.ended(p.dial("127.0.0.2")) {
		t.Error("one more was let in")
	}
	p.dial("127.0.0.3")
	testkit.Eventually(t, "another address is let in", func() bool { return p.counts(maxStrangers+1, maxStrangers+1) })
	introduce := func(have int) {
		testkit.Eventually(t, "they are accepted", func() bool { // which the counts show before
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.open) >= have
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.open {
			p.admission.Load().introduced(c.RemoteAddr().String())
		}
	}
	for have := maxStrangers + 1; have < maxPeers+1; have++ {
		introduce(have)
		p.dial("127.0.0.2")
		testkit.Eventually(t, "with an identity there is room", func() bool { return p.counts(have+1, 1) })
	}
	introduce(maxPeers + 1)
	if !p.ended(p.dial("127.0.0.2")) {
		t.Error("more than an address may have were let in")
	}
}

// TestAdmissionInTotal: where many addresses hold all places without an identity, one that has a single connection gets in, and
// the oldest of the one that has most goes.
func TestAdmissionInTotal(t *testing.T) {
	p := newPeers(t, time.Hour)
	var first net.Conn
	for i := range maxAllStrangers {
		c := p.dial(net.IPv4(127, 0, 1, byte(1+i/maxStrangers)).String())
		if i == 0 {
			first = c
		}
	}
	testkit.Eventually(t, "all places are taken", func() bool { return p.counts(maxAllStrangers, maxAllStrangers) })
	proxy := p.dial("127.0.0.9")
	testkit.Eventually(t, "the proxy is let in", func() bool {
		a := p.admission.Load()
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.byPeer[proxy.LocalAddr().String()] != nil && a.strangers == maxAllStrangers
	})
	_ = first
	for range 3 * maxStrangers { // the attacker goes on
		p.dial("127.0.1.99")
	}
	p.admission.Load().introduced(proxy.LocalAddr().String())
	_ = proxy.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := proxy.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the proxy's connection was closed: %v", err)
	}
}

// TestAdmissionInTime: who shows no identity in time goes, who does stays.
func TestAdmissionInTime(t *testing.T) {
	p := newPeers(t, 200*time.Millisecond)
	known := p.dial("127.0.0.2")
	testkit.Eventually(t, "it is let in", func() bool { return p.counts(1, 1) })
	p.admission.Load().introduced(known.LocalAddr().String())
	stranger := p.dial("127.0.0.2")
	if !p.ended(stranger) {
		t.Error("who shows no identity stays")
	}
	if !p.counts(1, 0) {
		t.Error("who has shown one is gone")
	}
}

// TestAllowance: there is a burst, then a rate.
func TestAllowance(t *testing.T) {
	var a allowance
	now := time.Now()
	taken := func() (n int) {
		for a.take(now) {
			n++
		}
		return n
	}
	if n := taken(); n != ackBurst {
		t.Errorf("%d at once, want %d", n, ackBurst)
	}
	if now = now.Add(5 * time.Second); taken() != 5*ackRate {
		t.Error("it is not the rate")
	}
	if now = now.Add(time.Hour); taken() != ackBurst {
		t.Error("it saves up more than the burst")
	}
}
