package proxy

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestHashOfConnections: connections and datagrams of a client address go to one endpoint.
func TestHashOfConnections(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	var addrs []string
	for i := range 5 {
		addrs = append(addrs, greeting(t, fmt.Sprint(i)))
	}
	g.apply([]*config.Resource{backend(balancedKey, addrs...)[1], backendOf(balancedBackend(hashBy(&config.ConsistentHash{SourceIp: true}))), g.tcpListener("tcp"),
		l4RouteOf("r", "default/gw/tcp", &config.BackendRef{Backend: balancedKey, Weight: 1})})
	at := func(ip byte) string {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, ip)}}
		c, err := d.Dial("tcp", g.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	seen := map[string]bool{}
	for ip := range byte(30) {
		first := at(ip + 1)
		seen[first] = true
		if again := at(ip + 1); again != first {
			t.Errorf("127.0.0.%d is at %q and %q", ip+1, first, again)
		}
	}
	if len(seen) < 3 {
		t.Errorf("30 clients are at %d of 5 endpoints", len(seen))
	}

	var servers []string
	for i := range 5 {
		servers = append(servers, udpEcho(t, fmt.Sprint(i)).LocalAddr().String())
	}
	const udpKey = "Service/default/u/80" // of which the table is there from the beginning on
	b := balancedBackend(hashBy(&config.ConsistentHash{SourceIp: true}))
	b.Key = udpKey
	g.apply([]*config.Resource{backend(udpKey, servers...)[1], backendOf(b), g.udpListener("udp"),
		l4RouteOf("u", "default/gw/udp", &config.BackendRef{Backend: udpKey, Weight: 1})}, config.ID{Kind: config.KindListener, Key: "default/gw/tcp"})
	clear(seen)
	for ip := range byte(30) {
		var first string
		for k := range 2 {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, ip+1)}}
			c, err := d.Dial("udp", g.addr())
			if err != nil {
				t.Fatal(err)
			}
			answer := ask(t, c, "?")
			c.Close()
			if k == 0 {
				first = answer
				seen[answer] = true
			} else if answer != first {
				t.Errorf("datagrams of 127.0.0.%d are answered by %q and %q", ip+1, first, answer)
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("datagrams of 30 clients are at %d of 5 endpoints", len(seen))
	}
}
