package client

import (
	stdtls "crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// overTLS is a connection to a port with TLS that has no Set, and its client's end.
func overTLS(t *testing.T, timeouts Timeouts, certificates stdtls.ClientAuthType) (c *Conn, peer *net.TCPConn) {
	t.Helper()
	peer, raw := testkit.TCPPair(t)
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	socket := &snapshot.Socket{Socket: &listen.Socket{}, Stats: metrics.Socket(observe.SocketLabels{Port: 443}),
		TLS: &stdtls.Config{SessionTicketsDisabled: true, ClientAuth: certificates, Certificates: []stdtls.Certificate{testkit.Certificate{Hosts: []string{"a.test"}}.TLS(t)}}}
	engine := &exchange.Engine{Observer: &observe.Observer{Metrics: metrics}}
	engine.Snapshot.Store(&snapshot.Snapshot{})
	set := NewSet(engine, timeouts, false)
	raw.SetWriteBuffer(64 << 10)
	return newConn(set, socket, of(t, raw), snapshot.HTTPS, &set.timeouts), peer
}

// TestCloseWriteOverTLS: a client that is slow to take what it was sent gets the end of the stream too, however long that takes. crypto/tls gives it 5 s.
func TestCloseWriteOverTLS(t *testing.T) {
	t.Parallel()
	c, peer := overTLS(t, Timeouts{}, stdtls.NoClientCert)
	client := stdtls.Client(peer, &stdtls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if !c.handshake(c.handshakeEnd()) {
		t.Fatal("no handshake")
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}

	testkit.CloseWriteToSlowPeer(t, c.tcp, peer, newDuplex(c).CloseWrite)
}

// TestRefusedHandshakeWhereScarce: a client whose handshake has failed keeps no connection from others where these are scarce, though it may have sent more than that.
func TestRefusedHandshakeWhereScarce(t *testing.T) {
	t.Parallel()
	for name, makeScarce := range map[string]func(*Set){
		"memory": func(s *Set) { s.engine.Overloaded.Store(true) },
		"connections": func(s *Set) {
			s.Limit(ConnectionLimits{Total: 1}, discard)
			s.connections.open.Store(1)
		},
	} {
		for what, speak := range map[string]func(net.Conn){
			"no certificate": func(c net.Conn) { stdtls.Client(c, &stdtls.Config{InsecureSkipVerify: true}).Handshake() },
			"no TLS":         func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				c, peer := overTLS(t, Timeouts{Linger: time.Hour}, stdtls.RequireAnyClientCert)
				makeScarce(c.set)
				ended := make(chan bool, 1)
				go func() { ended <- c.handshake(c.handshakeEnd()) }()
				speak(peer) // and keeps the connection open
				select {
				case ok := <-ended:
					if ok {
						t.Error("the handshake is done")
					}
				case <-time.After(testkit.Patience):
					t.Error("the connection is kept")
				}
			})
		}
	}
}
