// Package resp checks what a Redis server sends to its client: it ends a connection on which anything arrives except
// answers to commands, of the expected sizes. Clients trust their server: they allocate the memory that it announces
// for an answer, follow nested arrays to any depth, and panic if more answers arrive than commands were sent. An
// attacker in the place of Redis must not be able to crash the proxy.
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

// Dialer returns a DialFunc whose connections are Conns: over those of inner, or if that is nil over TCP, and over TLS
// if its configuration is not nil.
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
	sent atomic.Int64 // commands whose write has at least begun

	writing  sync.Mutex
	commands scanner

	reading  sync.Mutex
	answers  scanner
	answered int64
	broken   error
}

// NewConn returns a Conn over another connection, on which nothing must have been read or written.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c, commands: scanner{unbounded: true}} }

var errUnasked = errors.New("an answer without a command")

// Read implements net.Conn. Its error is what is wrong with an answer; nothing of an invalid answer is returned.
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
