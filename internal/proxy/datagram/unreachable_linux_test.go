package datagram

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// isolated runs the test in another process that has a network namespace of its own, with nothing but loopback and no way elsewhere. It returns true there.
func isolated(t *testing.T) bool {
	t.Helper()
	const variable = "MOONGATE_TEST_ISOLATED"
	if os.Getenv(variable) != "" {
		loopback(t)
		return true
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), variable+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if id := os.Getuid(); id != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// loopback has the system use the interface.
func loopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		t.Fatal(err)
	}
}

// TestNoWay: where there is no way to an endpoint, the first datagram goes to another one.
func TestNoWay(t *testing.T) {
	if !isolated(t) {
		return
	}
	const tries = 20 // in half of them the other endpoint is chosen first
	for range tries {
		var clock atomic.Int64
		set, s, weigh := servingAt(t, Options{Clock: &clock}, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), address(echo(t))})
		weigh(1)
		s.Serve()
		if !answersOnce(t, s.client(t)) {
			t.Fatal("no answer of the endpoint that there is a way to")
		}
		s.Close()
		set.running.Wait()
	}
}

// TestConnectedToItself: a session to a port at which nobody listens is none, if the socket for it gets just that port.
func TestConnectedToItself(t *testing.T) {
	if !isolated(t) {
		return
	}
	server := silent(t)
	at := address(server)
	var clock atomic.Int64
	lines := &testkit.Log{}
	log, err := observe.OpenAccessLog("json", lines, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, s, weigh := serving(t, Options{Clock: &clock, Observer: &observe.Observer{Log: log}}, server)
	weigh(1)
	s.Serve()
	c := s.client(t)
	server.Close()
	only := fmt.Sprintf("%d\t%[1]d", at.Port())
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(only), 0); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x"))
	testkit.Eventually(t, "the datagram to be dropped", func() bool { return strings.Contains(lines.String(), `"reason":"connect_failed"`) })
	if n := set.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	s.Close()
	set.running.Wait()
	log.Close(testkit.Patience)
}

func address(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// icmp is what a router sends in answer to a datagram, and what the system makes of it.
var icmp = []struct {
	kind, code byte
	errno      syscall.Errno
}{
	{icmpUnreachable, 2, unix.ENOPROTOOPT},
	{icmpUnreachable, 3, unix.ECONNREFUSED},
	{icmpUnreachable, 6, unix.ENETUNREACH},
	{icmpUnreachable, 7, unix.EHOSTDOWN},
	{icmpUnreachable, 13, unix.EHOSTUNREACH}, // communication administratively prohibited
	{icmpv6Unreachable, 1, unix.EACCES},      // likewise
	{icmpv6Unreachable, 4, unix.ECONNREFUSED},
}

const icmpUnreachable, icmpv6Unreachable = 3, 1

// answerICMP sends what a router answers to a datagram from one address to another.
func answerICMP(t *testing.T, kind, code byte, from, to netip.AddrPort) {
	t.Helper()
	const udp = 17
	network, inner := "ip4:icmp", []byte{0: 0x45, 3: 28, 8: 64, 9: udp, 19: 0}
	if from.Addr().Is6() {
		network, inner = "ip6:ipv6-icmp", []byte{0: 0x60, 5: 8, 6: udp, 7: 64, 39: 0}
	}
	n := len(inner)
	copy(inner[n-2*len(from.Addr().AsSlice()):], append(from.Addr().AsSlice(), to.Addr().AsSlice()...))
	inner = binary.BigEndian.AppendUint16(inner, from.Port())
	inner = binary.BigEndian.AppendUint16(inner, to.Port())
	inner = append(inner, 0, 8, 0, 0)
	message := append([]byte{kind, code, 0, 0, 0, 0, 0, 0}, inner...)
	if from.Addr().Is4() { // of ICMPv6 the system makes the checksum
		sum := uint32(0)
		for i := 0; i < len(message); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(message[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
	}
	c, err := net.DialIP(network, nil, &net.IPAddr{IP: from.Addr().AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(message); err != nil {
		t.Fatal(err)
	}
}

// TestICMPEndsSession: a router that answers for an endpoint ends the session, whatever it says.
func TestICMPEndsSession(t *testing.T) {
	if !isolated(t) {
		return
	}
	for _, tc := range icmp {
		var clock atomic.Int64
		server := local4or6(t, tc.kind)
		set, s, weigh := serving(t, Options{Clock: &clock}, server)
		weigh(1)
		s.Serve()
		s.client(t).Write([]byte("x"))
		_, from, err := server.ReadFromUDPAddrPort(make([]byte, 1))
		if err != nil {
			t.Fatal(err)
		}
		answerICMP(t, tc.kind, tc.code, from, address(server))
		testkit.Eventually(t, fmt.Sprintf("the session to end, of %v", tc.errno), func() bool { return set.Sessions() == 0 })
		s.Close()
		set.running.Wait()
	}
}

// local4or6 is silent for ICMP or ICMPv6.
func local4or6(t *testing.T, kind byte) *net.UDPConn {
	t.Helper()
	if kind != icmpv6Unreachable {
		return silent(t)
	}
	c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestICMPLosesNoDatagram: what a router has answered to an earlier datagram is not taken for an error of one that is sent then.
func TestICMPLosesNoDatagram(t *testing.T) {
	if !isolated(t) {
		return
	}
	for _, tc := range icmp {
		server := local4or6(t, tc.kind)
		c, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answerICMP(t, tc.kind, tc.code, address(c), address(server))
		raw, b := failing(t, c), newBatch(true)
		b.in[0].size = 1
		if next, _, err := b.send(raw, 0, 1); next != 0 || err != tc.errno {
			t.Errorf("what is next is datagram %d, %v; want the first one, and %v", next, err, tc.errno)
		}
	}
}
