package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/testkit"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// open binds a free port of loopback.
func open(t *testing.T) *Socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	s, err := Open(Addr{IP: loopback, Port: uint16(port)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAddrString(t *testing.T) {
	for want, a := range map[string]Addr{
		":80":          {Port: 80},
		"127.0.0.1:80": {IP: loopback, Port: 80},
		"[::1]:80":     {IP: netip.MustParseAddr("::1"), Port: 80},
	} {
		if a.String() != want {
			t.Errorf("%s, want %s", a, want)
		}
	}
}

func TestOpenTaken(t *testing.T) {
	s := open(t)
	defer s.Abandon()
	if _, err := Open(s.Addr, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want that the address is in use", err)
	}
}

// TestServe accepts until Close; Close waits for Serve and frees the port.
func TestServe(t *testing.T) {
	s := open(t)
	var accepted atomic.Int64
	returned := make(chan struct{})
	go func() {
		s.Serve(func(c *socket.Conn) { accepted.Add(1); c.Close() }, func(err error) { t.Error(err) })
		close(returned)
	}()
	for range 10 {
		c, err := net.Dial("tcp", s.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		io.ReadAll(c) // until it was accepted and closed
		c.Close()
	}
	s.Close()
	select {
	case <-returned:
	case <-time.After(time.Second):
		t.Fatal("Serve goes on")
	}
	if n := accepted.Load(); n != 10 {
		t.Errorf("%d connections accepted, want 10", n)
	}
	again, err := Open(s.Addr, nil)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	again.Abandon()
}

// TestServeByMany: several goroutines accept as one does, until Close and until Retire.
func TestServeByMany(t *testing.T) {
	for name, end := range map[string]func(*Socket){
		"close":  (*Socket).Close,
		"retire": func(s *Socket) { s.Retire(time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			const n, each = 4, 50
			var accepted atomic.Int64
			returned := make(chan struct{})
			go func() {
				s.serve(n, func(c *socket.Conn) { accepted.Add(1); c.Close() }, func(err error) { t.Error(err) })
				close(returned)
			}()
			var clients sync.WaitGroup
			for range n {
				clients.Go(func() {
					for range each {
						c, err := net.Dial("tcp", s.Addr.String())
						if err != nil {
							t.Error(err)
							return
						}
						io.ReadAll(c) // until it was accepted and closed
						c.Close()
					}
				})
			}
			clients.Wait()
			end(s)
			<-returned
			if got := accepted.Load(); got != n*each {
				t.Errorf("%d connections accepted, want %d", got, n*each)
			}
		})
	}
	for cores, want := range map[int]int{1: 1, 2: 1, 15: 1, 16: 2, 64: 4, 256: 4} {
		if got := acceptors(cores); got != want {
			t.Errorf("%d for %d cores, want %d", got, cores, want)
		}
	}
}

// nothing is a Predecessor that has no socket open.
type nothing chan struct{}

func (n nothing) Socket(string, string) *os.File { return nil }

func (n nothing) Done() <-chan struct{} { return n }

// TestOpenWaits: what a process binds itself while the one before it serves is taken from at its turn, and given back where that does not come.
func TestOpenWaits(t *testing.T) {
	l := open(t)
	addr := l.Addr
	l.Abandon()
	for _, turn := range []bool{false, true} {
		from := make(nothing)
		s, err := Open(addr, from)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan struct{}, 1)
		go s.Serve(func(c *socket.Conn) { c.Close(); accepted <- struct{}{} }, func(err error) { t.Error(err) })
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		select {
		case <-accepted:
			t.Error("accepted before its turn")
		case <-time.After(50 * time.Millisecond):
		}
		if turn {
			close(from)
			<-accepted
		}
		s.Close()
		udp, theirs, err := OpenUDP(addr, from)
		if err != nil {
			t.Fatal(err)
		}
		if theirs.Begun() != turn {
			t.Errorf("UDP: our turn is %v, want %v", theirs.Begun(), turn)
		}
		udp.Close()
	}
}

// TestFamilies: 0.0.0.0 and :: are every address of their family, and no more, so that both can be bound; without an address there is one socket for all.
func TestFamilies(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	has6 := err == nil
	if has6 {
		l.Close()
	}
	ports := testkit.Ports{Low: 8000, High: 10000}
	port := uint16(ports.Free(t))
	reached := func(what string, want map[string]bool) {
		t.Helper()
		for host, want := range want {
			want = want && (host != "::1" || has6)
			c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
			if err == nil {
				c.Close()
			}
			if (err == nil) != want {
				t.Errorf("%s: %s: %v", what, host, err)
			}
		}
	}
	bind := func(ip netip.Addr) *Socket {
		t.Helper()
		s, err := Open(Addr{IP: ip, Port: port}, nil)
		if err != nil {
			t.Fatal(err)
		}
		udp, _, err := OpenUDP(Addr{IP: ip, Port: port}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { udp.Close() })
		return s
	}
	all4 := bind(netip.IPv4Unspecified())
	reached("0.0.0.0", map[string]bool{"127.0.0.1": true, "::1": false})
	if has6 {
		all6 := bind(netip.IPv6Unspecified())
		reached("both", map[string]bool{"127.0.0.1": true, "::1": true})
		all4.Abandon()
		reached("::", map[string]bool{"127.0.0.1": false, "::1": true})
		all6.Abandon()
	} else {
		all4.Abandon()
	}
	port = uint16(ports.Free(t)) // the sockets of UDP are open still
	every := bind(netip.Addr{})
	reached("none", map[string]bool{"127.0.0.1": true, "::1": true})
	every.Abandon()
}

// TestRetireHandsOn: what was established when the end begins is handed on, although Serve is behind.
func TestRetireHandsOn(t *testing.T) {
	s := open(t)
	goOn := make(chan struct{})
	go s.Serve(func(c *socket.Conn) {
		<-goOn
		c.Write([]byte("x"))
		c.Close()
	}, func(err error) { t.Error(err) })
	var clients []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", s.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	retired := make(chan struct{})
	go func() {
		s.Retire(time.Millisecond)
		close(retired)
	}()
	for { // until Retire has begun
		c, err := net.DialTimeout("tcp", s.Addr.String(), 50*time.Millisecond)
		var unanswered net.Error
		if errors.As(err, &unanswered) && unanswered.Timeout() {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	close(goOn)
	for i, c := range clients {
		if content, err := io.ReadAll(c); string(content) != "x" {
			t.Errorf("connection %d of %d was not handed on: %q, %v", i, len(clients), content, err)
		}
	}
	<-retired
	if _, err := net.Dial("tcp", s.Addr.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Retire: %v", err)
	}
}

// TestRetireWithoutDescriptors: what waits is handed on once there are descriptors again.
func TestRetireWithoutDescriptors(t *testing.T) {
	s := open(t)
	var clients []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", s.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	restore := sync.OnceFunc(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	reported := make(chan error, 1000)
	retired := make(chan struct{})
	go s.Serve(func(c *socket.Conn) { c.Write([]byte("x")); c.Close() }, func(err error) { reported <- err })
	go func() { s.Retire(time.Millisecond); close(retired) }()
	for range 3 {
		if err := <-reported; !errors.Is(err, unix.EMFILE) {
			t.Errorf("reported %v", err)
		}
	}
	restore()
	for _, c := range clients {
		c.SetReadDeadline(time.Now().Add(testkit.Patience))
		if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	<-retired
}

// TestServeReports: a failure that is not Close is told, and Serve goes on.
func TestServeReports(t *testing.T) {
	s := open(t)
	reported := make(chan error, 100)
	s.ln.setDeadline(time.Unix(1, 0)) // accept fails from now on
	go s.Serve(func(c *socket.Conn) { c.Close() }, func(err error) { reported <- err })
	for range 2 {
		select {
		case err := <-reported:
			if err == nil || !strings.Contains(err.Error(), "timeout") {
				t.Errorf("reported %v", err)
			}
		case <-time.After(time.Second):
			t.Fatal("nothing was reported")
		}
	}
	s.ln.setDeadline(time.Time{})
	c, err := net.Dial("tcp", s.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("not accepted afterwards: %v", err)
	}
	c.Close()
	s.Close()
}

// pair is a connection by way of a Socket: the client's end and the accepted one.
func pair(t *testing.T) (client *net.TCPConn, server *socket.Conn) {
	t.Helper()
	return pairOf(t, open(t))
}

// pairOf is pair by way of s, which it closes.
func pairOf(t *testing.T, s *Socket) (client *net.TCPConn, server *socket.Conn) {
	t.Helper()
	got := make(chan *socket.Conn, 1)
	go s.Serve(func(c *socket.Conn) { got <- c }, func(err error) { t.Error(err) })
	c, err := net.Dial("tcp", s.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	server = <-got
	s.Close()
	t.Cleanup(func() { c.Close(); server.Close() })
	return c.(*net.TCPConn), server
}

// TestOptionsAreInherited: accepted connections have the options of the listening socket, also of one that another process has bound without them.
func TestOptionsAreInherited(t *testing.T) {
	t.Run("bound", func(t *testing.T) {
		_, server := pair(t)
		checkOptions(t, server)
	})
	t.Run("taken over", func(t *testing.T) {
		var theirs plainly
		ln, err := theirs.bind()
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		addr := ln.Addr().(*net.TCPAddr).AddrPort()
		theirs.ln = ln
		s, err := Open(Addr{IP: addr.Addr(), Port: addr.Port()}, theirs)
		if err != nil {
			t.Fatal(err)
		}
		_, server := pairOf(t, s)
		checkOptions(t, server)
	})
}

// plainly is a Predecessor that is done, with a socket on which no option is set.
type plainly struct{ ln *net.TCPListener }

func (plainly) bind() (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

func (p plainly) Socket(string, string) *os.File {
	raw, err := p.ln.SyscallConn()
	if err != nil {
		return nil
	}
	var file *os.File
	raw.Control(func(fd uintptr) {
		if fd, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			file = os.NewFile(uintptr(fd), "tcp")
		}
	})
	return file
}

func (plainly) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func checkOptions(t *testing.T, server *socket.Conn) {
	t.Helper()
	server.Raw().Control(func(fd uintptr) {
		on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		if err != nil || on == 0 {
			t.Errorf("keep-alive is %d, %v", on, err)
		}
		if noDelay, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || noDelay == 0 {
			t.Errorf("TCP_NODELAY is %d, %v", noDelay, err)
		}
		idle, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		if err != nil || idle != int(keepAlivePeriod.Seconds()) {
			t.Errorf("keep-alive after %d s, %v", idle, err)
		}
	})
}

func TestPeerGoneAndReadable(t *testing.T) {
	for _, tc := range []struct {
		name           string
		do             func(client *net.TCPConn)
		gone, readable bool
		reset          bool
	}{
		{"silent", func(*net.TCPConn) {}, false, false, false},
		{"data", func(c *net.TCPConn) { c.Write([]byte("x")) }, false, true, false},
		{"data and half-close", func(c *net.TCPConn) { c.Write([]byte("x")); c.CloseWrite() }, true, true, false},
		{"half-close", func(c *net.TCPConn) { c.CloseWrite() }, true, true, false},
		{"close", func(c *net.TCPConn) { c.Close() }, true, true, false},
		{"reset", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, true, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := pair(t)
			raw := server.Raw()
			tc.do(client)
			if tc.readable {
				testkit.Eventually(t, "readable", func() bool { return Readable(raw) })
			} else if Readable(raw) {
				t.Error("readable")
			}
			if tc.gone {
				testkit.Eventually(t, "gone", func() bool { return PeerGone(raw) })
			} else if PeerGone(raw) {
				t.Error("gone")
			}
			if got := PeerReset(raw); got != tc.reset {
				t.Errorf("reset: %v", got)
			}
		})
	}
}

// TestPeerGoneAfterClose: a connection that we closed ourselves counts as gone, not as anything else's descriptor.
func TestPeerGoneAfterClose(t *testing.T) {
	_, server := pair(t)
	raw := server.Raw()
	server.Close()
	if !PeerGone(raw) || Readable(raw) {
		t.Errorf("gone %v, readable %v", PeerGone(raw), Readable(raw))
	}
}
