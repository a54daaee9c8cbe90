package client

import (
	"bytes"
	stdtls "crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// sealedClient is overTLS behind its handshake, with what makes the client's records.
func sealedClient(t *testing.T) (*Conn, *net.TCPConn, *testkit.Sealer) {
	t.Helper()
	c, peer := overTLS(t, Timeouts{}, stdtls.NoClientCert)
	var keys bytes.Buffer
	client := stdtls.Client(peer, &stdtls.Config{InsecureSkipVerify: true, KeyLogWriter: &keys})
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if !c.handshake(c.handshakeEnd()) {
		t.Fatal("no handshake")
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return c, peer, testkit.SealerOf(t, keys.String(), testkit.ClientTrafficSecret)
}

// TestKeyUpdateNobodyTakes: a client that asks for other keys and does not take the answer keeps nobody waiting for longer than one that does not take a
// response, whoever reads from it; one that takes it late goes on.
func TestKeyUpdateNobodyTakes(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*Conn){
		"a head": func(c *Conn) { c.nextHead() },
		"a head by net.Conn": func(c *Conn) {
			c.set.plainIO = true
			c.nextHead()
		},
		"a body":    func(c *Conn) { c.readBody(&buffer.Lender{}) },
		"a tunnel":  func(c *Conn) { newDuplex(c).ReadInto(&buffer.Lender{}) },
		"HTTP/2":    nil,
		"late":      func(c *Conn) { c.readBody(&buffer.Lender{}) },
		"late head": func(c *Conn) { c.nextHead() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, peer, records := sealedClient(t)
			if read == nil {
				h := http2.New(c.writingApart(), http2.Options{}, nil)
				c.http2.Store(h)
				read = func(c *Conn) { c.nc.Read(make([]byte, 1)) }
			}
			sent := testkit.FillTCP(t, c.tcp, peer)
			if _, err := peer.Write(records.Rekey(true)); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				read(c)
			}()
			writing := func() bool {
				kind, _, _ := c.wireWait.get()
				return kind != waitNothing
			}
			testkit.Eventually(t, "the answer is written", writing)
			limit := c.timeouts.WriteIdle
			if name == "a tunnel" {
				limit = c.timeouts.TunnelWrite
			}
			if _, ok := c.WritingSince(); ok != (name != "a tunnel") {
				t.Errorf("it shows as a write: %v", ok)
			}
			now := c.set.engine.Now()
			c.sweep(now + limit.Milliseconds() - 1)
			time.Sleep(20 * time.Millisecond)
			if !writing() {
				t.Fatal("ended too early")
			}
			if name == "late" || name == "late head" {
				peer.SetReadDeadline(time.Now().Add(testkit.Patience))
				if _, err := io.CopyN(io.Discard, peer, int64(sent)); err != nil {
					t.Fatal(err)
				}
				const answerSize = 27
				if _, err := io.ReadFull(peer, make([]byte, answerSize)); err != nil {
					t.Errorf("no answer: %v", err)
				}
				peer.Write(records.Seal(testkit.TLSData, []byte("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")))
				<-done
				return
			}
			c.sweep(now + limit.Milliseconds())
			testkit.Eventually(t, "the write has ended", func() bool { return !writing() })
			c.tcp.SetReadDeadline(longAgo)
			<-done
		})
	}
}
