package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// client sends one request after the other.
type client struct {
	load   *Load
	spec   *Spec
	kind   Kind
	number int

	connection net.Conn // nil if the next request opens one
	reader     *bufio.Reader
	used       bool // connection has served a request
	refused    bool // of this request a connection was refused

	mu     sync.Mutex
	report Report
}

func (c *client) snapshot() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

func (c *client) run(ctx context.Context) {
	defer c.close()
	for ctx.Err() == nil {
		begin, phase := time.Now(), *c.load.phase.Load()
		reused := c.connection != nil
		c.refused = false
		err := c.request()
		var idle *idleError
		repeated := errors.As(err, &idle) && c.kind != Upload
		if repeated {
			err = c.request()
		}
		c.note(phase, begin, reused && !repeated, repeated, err)
		if c.spec.Pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(c.spec.Pause):
			}
		}
	}
}

func (c *client) note(phase string, begin time.Time, reused, repeated bool, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Requests++
	c.report.Slowest = max(c.report.Slowest, now.Sub(begin))
	if err != nil {
		c.report.Failures = append(c.report.Failures, Failure{
			At: now, Took: now.Sub(begin), Phase: phase, Kind: c.kind, Client: c.number, Secure: c.spec.TLS != nil, Reused: reused, Reason: reason(err),
		})
		return
	}
	if repeated {
		c.report.Repeated++
	}
	if c.refused {
		c.report.Redialled++
	}
}

// reason is err without the ports of this side, which differ in each failure.
func reason(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return strings.Replace(err.Error(), operation.Error(), operation.Op+": "+operation.Err.Error(), 1)
	}
	return err.Error()
}

// idleError is the end of a kept connection before any byte of the answer.
type idleError struct{ err error }

func (e *idleError) Error() string { return "kept connection closed: " + e.err.Error() }
func (e *idleError) Unwrap() error { return e.err }

const uploaded = 4 << 10 // bytes of a body

// request sends one request and reads its whole answer. After an error the
// connection is closed.
func (c *client) request() (err error) {
	keep := false
	defer func() {
		if err != nil || !keep {
			c.close()
		}
	}()
	if c.connection != nil && c.ended() {
		c.close()
	}
	if c.connection == nil {
		if c.connection, err = c.dial(); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		c.reader, c.used = bufio.NewReader(c.connection), false
	}
	if err := c.connection.SetDeadline(time.Now().Add(c.spec.Timeout)); err != nil {
		return err
	}
	method, head, body := http.MethodGet, "", ""
	switch c.kind {
	case Upload:
		method, head, body = http.MethodPost, fmt.Sprintf("Content-Length: %d\r\n", uploaded), strings.Repeat("u", uploaded)
	case Fresh:
		head = "Connection: close\r\n"
	}
	_, writeErr := fmt.Fprintf(c.connection, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", method, c.spec.Path, c.spec.Host, head, body)
	// An answer may be there although the request could not be written to its end.
	if _, err := c.reader.Peek(1); err != nil {
		err = errors.Join(writeErr, err)
		var timeout net.Error
		if c.used && !(errors.As(err, &timeout) && timeout.Timeout()) {
			return &idleError{err}
		}
		return fmt.Errorf("await the answer: %w", err)
	}
	keep, err = c.answer(method)
	c.used, keep = true, keep && c.kind != Fresh
	return err
}

// look is how long a client looks whether a connection that it kept still stands.
const look = time.Millisecond

// ended tells whether the kept connection has ended while it was idle, which every client
// notices that waits for something to read meanwhile.
func (c *client) ended() bool {
	if c.connection.SetReadDeadline(time.Now().Add(look)) != nil {
		return true
	}
	_, err := c.reader.Peek(1)
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// redialPause is between two tries to connect.
const redialPause = 50 * time.Millisecond

func (c *client) dial() (net.Conn, error) {
	end := time.Now().Add(c.spec.Timeout)
	for {
		connection, err := net.DialTimeout("tcp", c.spec.Address, c.spec.Timeout)
		switch {
		case err == nil && c.spec.TLS == nil:
			return connection, nil
		case err == nil:
			secured := tls.Client(connection, c.spec.TLS)
			if err := errors.Join(connection.SetDeadline(end), secured.Handshake()); err != nil {
				connection.Close()
				return nil, fmt.Errorf("handshake: %w", err)
			}
			return secured, nil
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, err
		}
		c.load.refused.Add(1)
		if !c.load.redial.Load() || time.Now().After(end) {
			return nil, err
		}
		c.refused = true
		time.Sleep(redialPause)
	}
}

func (c *client) answer(method string) (keep bool, err error) {
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return false, fmt.Errorf("read the answer's body after %d bytes: %w", len(content), err)
	}
	if response.StatusCode != c.spec.Status {
		return !response.Close, fmt.Errorf("status %d: %.100q", response.StatusCode, content)
	}
	return !response.Close, nil
}

func (c *client) close() {
	if c.connection != nil {
		c.connection.Close()
		c.connection = nil
	}
}
