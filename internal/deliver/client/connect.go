package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// maxPauseUnavailable is for controllers that are running but do not lead: one of them will soon, and changes wait for it.
	maxPauseUnavailable = time.Second
	// connectTimeout limits TCP and TLS together for one address.
	connectTimeout = 5 * time.Second
	// refuseTimeout is how long the client waits until its refusal was received.
	refuseTimeout = 2 * time.Second
	// maxMessage is the maximum size of a message in bytes: a Chunk with one huge resource.
	maxMessage = 64 << 20
	// repeatAfter is after how long a failure that stays the same is logged again.
	repeatAfter = time.Minute
)

// follow opens one stream after the other until ctx ends.
func (c *Client) follow(ctx context.Context) {
	pause := minPause
	said, saidAt := "", time.Time{}
	for {
		progress, err := c.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said || time.Since(saidAt) > repeatAfter || progress {
			c.o.Logger.Warn("no connection to the controller; the applied configuration stays in force", "controller", c.o.Controller, "error", text)
			said, saidAt = text, time.Now()
		}
		if progress {
			pause = minPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = longer(pause, err)
	}
}

// longer returns the pause after the next failure.
func longer(pause time.Duration, err error) time.Duration {
	if status.Code(err) == codes.Unavailable {
		return min(2*pause, maxPauseUnavailable)
	}
	return min(2*pause, maxPause)
}

// round tries the controller's addresses, without a pause as long as they are only unavailable. It returns why the last stream ended
// and whether it made progress.
func (c *Client) round(ctx context.Context) (progress bool, err error) {
	host, port, err := net.SplitHostPort(c.o.Controller)
	if err != nil {
		return false, fmt.Errorf("the controller's address must be host:port: %w", err)
	}
	addresses, err := c.lookup(ctx, host)
	if err != nil {
		return false, err
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	err = fmt.Errorf("%s has no address", host)
	for _, a := range addresses {
		progress, err = c.session(ctx, host, net.JoinHostPort(a, port))
		if progress || status.Code(err) != codes.Unavailable {
			return progress, err
		}
	}
	return false, err
}

// session runs one stream until it ends, which is always with an error.
func (c *Client) session(ctx context.Context, host, address string) (progress bool, err error) {
	conn, err := c.dial(host, address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	token, err := os.ReadFile(c.o.TokenFile)
	if err != nil {
		return false, fmt.Errorf("reading this proxy's identity: %w", err)
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token))))
	defer cancel()
	stream, err := wire.NewDeliveryClient(conn).Stream(ctx)
	if err != nil {
		return false, err
	}
	l := &link{stream: stream}
	c.mu.Lock()
	hello := &wire.Hello{Gateway: c.o.Gateway, Version: c.o.Version, Epoch: c.held.epoch, Generation: c.held.generation}
	c.mu.Unlock()
	_ = l.send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: hello}}) // Recv reports the error
	defer c.setLink(nil)
	var parts assembler
	for {
		m, err := stream.Recv()
		if err != nil {
			return progress, err
		}
		g, err := parts.take(m)
		if err == nil && g != nil {
			err = c.accept(g)
		}
		if err != nil {
			defer time.AfterFunc(refuseTimeout, cancel).Stop()
			c.refuse(l, g, err)
			return progress, err
		}
		if g == nil {
			continue
		}
		if !progress {
			c.o.Logger.Info("configured by the controller", "address", address, "generation", g.number, "epoch", g.epoch, "full", g.full)
		}
		progress = true
		c.setLink(l)
		_ = l.acknowledge(c) // Recv reports the error
	}
}

// accept applies a generation if it follows the present one.
func (c *Client) accept(g *generation) error {
	c.mu.Lock()
	err := c.held.follows(g)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.apply(g)
	return nil
}

// refuse reports to the controller that it has sent an invalid generation, and waits for the end of the stream; the next one begins
// with a full generation.
func (c *Client) refuse(l *link, g *generation, why error) {
	c.mu.Lock()
	a := &wire.Ack{Epoch: c.held.epoch, Generation: c.held.generation, Error: why.Error()}
	c.held.epoch = ""
	c.mu.Unlock()
	if g != nil {
		a.Epoch, a.Generation = g.epoch, g.number
	}
	_ = l.send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: a}})
	_ = l.stream.CloseSend()
	for err := error(nil); err == nil; { // until it was received
		_, err = l.stream.Recv()
	}
}

func (c *Client) setLink(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
}

func (c *Client) dial(host, address string) (*grpc.ClientConn, error) {
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(c.o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the controller's CA: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate in PEM", c.o.CAFile)
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13})),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
}

// link is the sending side of a stream.
type link struct {
	mu     sync.Mutex
	stream wire.Delivery_StreamClient
}

func (l *link) send(m *wire.FromProxy) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stream.Send(m)
}

// acknowledge answers with the present state, so that the later of two answers is the valid one.
func (l *link) acknowledge(c *Client) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	a := c.held.ack()
	c.mu.Unlock()
	return l.stream.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: a}})
}
