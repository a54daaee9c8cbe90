//go:build linux

package load

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/origin"
)

func datagrams(addr netip.AddrPort) *Spec {
	return &Spec{
		Address: addr, Exchange: Datagrams, Message: []byte(strings.Repeat("m", 128)), Connections: 8,
		Warmup: 20 * time.Millisecond, Window: 100 * time.Millisecond, Proxy: []int{os.Getpid()},
	}
}

func TestDatagrams(t *testing.T) {
	fd, addr, err := epoll.ListenDatagram()
	if err != nil {
		t.Fatal(err)
	}
	server, err := origin.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.UDP(fd); err != nil {
		t.Fatal(err)
	}
	go server.Serve()
	for _, burst := range []int{0, 1, 8, maxBurst} {
		s := datagrams(addr)
		s.Burst = burst
		check(t, s)
	}
}

// What is not the answer to the socket's last datagram, or does not come, is no figure.
func TestDatagramErrorsEndTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(c net.PacketConn, b []byte, from net.Addr)
		want   string
	}{
		"changed": {func(c net.PacketConn, b []byte, from net.Addr) { b[100]++; c.WriteTo(b, from) }, "not the answer"},
		"short":   {func(c net.PacketConn, b []byte, from net.Addr) { c.WriteTo(b[:10], from) }, "not the answer"},
		"another": {func(c net.PacketConn, b []byte, from net.Addr) { b[3]++; c.WriteTo(b, from) }, "not the answer"},
		"twice":   {func(c net.PacketConn, b []byte, from net.Addr) { c.WriteTo(b, from); c.WriteTo(b, from) }, "not the answer"},
		"lost":    {func(net.PacketConn, []byte, net.Addr) {}, "no answer to a datagram"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			go func() {
				b := make([]byte, 1<<10)
				for {
					n, from, err := server.ReadFrom(b)
					if err != nil {
						return
					}
					c.answer(server, b[:n], from)
				}
			}()
			s := datagrams(server.LocalAddr().(*net.UDPAddr).AddrPort())
			s.Window = time.Minute // ended by the errors
			s.Connections = maxErrors
			if _, err := Run(s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
