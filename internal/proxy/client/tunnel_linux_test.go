package client

import (
	stdtls "crypto/tls"
	"testing"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestCloseWriteOverTLS: a client that is slow to take what it was sent gets the end of the stream too, however long that takes. crypto/tls gives it 5 s.
func TestCloseWriteOverTLS(t *testing.T) {
	t.Parallel()
	peer, raw := testkit.TCPPair(t)
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	socket := &snapshot.Socket{Socket: &listen.Socket{}, Stats: metrics.Socket(observe.SocketLabels{Port: 443}),
		TLS: &stdtls.Config{SessionTicketsDisabled: true, Certificates: []stdtls.Certificate{testkit.Certificate{Hosts: []string{"a.test"}}.TLS(t)}}}
	engine := &exchange.Engine{Observer: &observe.Observer{Metrics: metrics}}
	engine.Snapshot.Store(&snapshot.Snapshot{})
	c := newConn(NewSet(engine, Timeouts{}, false), socket, raw, &snapshot.Port{Mode: snapshot.HTTPS})
	client := stdtls.Client(peer, &stdtls.Config{InsecureSkipVerify: true})
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if !c.handshake(c.handshakeEnd()) {
		t.Fatal("no handshake")
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}

	testkit.CloseWriteToSlowPeer(t, raw, peer, newDuplex(c).CloseWrite)
}
