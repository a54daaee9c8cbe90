// Package resp stands between a client of Redis and the server: it ends a connection on which something else comes than answers to what was asked, in the sizes that
// those have. Clients trust their server. They take the memory that it says an answer needs, follow arrays within arrays to any depth, and end the process where
// more answers come than commands were sent; but whoever can speak in Redis' place is not to be the end of a proxy.
package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// DialFunc is rueidis' ClientOption.DialCtxFn.
type DialFunc = func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error)

// Dialer returns a DialFunc whose connections are Conns: over those of inner, or where that is nil over TCP, and over TLS where its configuration is not nil.
func Dialer(inner DialFunc) DialFunc {
	if inner == nil {
		inner = dial
	}
	return func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		c, err := inner(ctx, address, dialer, config)
		if err != nil {
			return nil, err
		}
		return NewConn(c), nil
	}
}

func dial(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

// Conn is the connection of a client.
type Conn struct {
	net.Conn
	sent atomic.Int64 // commands, as much as has begun to be written

	writing  sync.Mutex
	commands scanner

	reading  sync.Mutex
	answers  scanner
	answered int64
	broken   error
}

// NewConn returns a Conn over another connection, on which nothing has been read or written.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c, commands: scanner{unbounded: true}} }

var errUnasked = errors.New("an answer to nothing")

// Read implements net.Conn. Its error says what is wrong with an answer; nothing of that is returned.
func (c *Conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	n, err := c.Conn.Read(b)
	if n <= 0 {
		return n, err
	}
	whole, fault := c.answers.scan(b[:n])
	c.answered += int64(whole)
	if sent := c.sent.Load(); fault == nil && (c.answered > sent || c.answered == sent && c.answers.begun()) {
		fault = errUnasked
	}
	if fault != nil {
		c.broken = fmt.Errorf("the server does not answer as Redis does: %w", fault)
		c.Conn.Close()
		return 0, c.broken
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	whole, err := c.commands.scan(b)
	c.writing.Unlock()
	if err != nil {
		return 0, fmt.Errorf("a command is malformed: %w", err)
	}
	c.sent.Add(int64(whole))
	return c.Conn.Write(b)
}
