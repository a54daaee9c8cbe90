package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// client sends one request after the other.
type client struct {
	spec *Spec
	kind Kind

	connection net.Conn // nil if the next request opens one
	reader     *bufio.Reader
	used       bool // connection has served a request

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
		begin := time.Now()
		reused := c.connection != nil
		err := c.request()
		var idle *idleError
		repeated := errors.As(err, &idle) && c.kind != Upload
		if repeated {
			err = c.request()
		}
		c.note(begin, reused && !repeated, repeated, err)
		if c.spec.Pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(c.spec.Pause):
			}
		}
	}
}

func (c *client) note(begin time.Time, reused, repeated bool, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Requests++
	c.report.Slowest = max(c.report.Slowest, now.Sub(begin))
	if err != nil {
		c.report.Failures = append(c.report.Failures, Failure{At: now, Took: now.Sub(begin), Kind: c.kind, Reused: reused, Reason: reason(err)})
	} else if repeated {
		c.report.Repeated++
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
	if c.connection == nil {
		connection, err := net.DialTimeout("tcp", c.spec.Address, c.spec.Timeout)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		c.connection, c.reader, c.used = connection, bufio.NewReader(connection), false
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
