//go:build linux

package load

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// findHead sets c.total once the response head is complete. The origin's head never
// changes, so after the first response one comparison is all the parsing there is.
func (l *loop) findHead(c *conn) error {
	in := c.buf[:c.got]
	body := l.spec.BodySize
	if l.spec.Exchange == WebSocket {
		body = 0
	}
	if len(l.head) > 0 && bytes.HasPrefix(in, l.head) {
		c.total = len(l.head) + body
		return nil
	}
	n := bytes.Index(in, []byte("\r\n\r\n"))
	if n < 0 {
		if c.got == len(c.buf) {
			return fmt.Errorf("response head larger than %d bytes", len(c.buf))
		}
		return nil
	}
	head := in[:n+4]
	if err := l.checkHead(string(head)); err != nil {
		return err
	}
	l.head = bytes.Clone(head)
	c.total = len(head) + body
	return nil
}

func (l *loop) checkHead(head string) error {
	if l.spec.Exchange != WebSocket {
		return checkHead(head, l.spec.BodySize)
	}
	if line, _, _ := strings.Cut(head, "\r\n"); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		return fmt.Errorf("answer %q, want 101", line)
	}
	return nil
}

// checkHead accepts a 200 with the expected Content-Length.
func checkHead(head string, bodySize int) error {
	lines := strings.Split(head, "\r\n")
	if !strings.HasPrefix(lines[0], "HTTP/1.1 200 ") {
		return fmt.Errorf("answer %q", lines[0])
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(name, "Content-Length") {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err != nil || n != bodySize {
			return fmt.Errorf("%q, want %d bytes", line, bodySize)
		}
		return nil
	}
	return fmt.Errorf("no Content-Length in %q", head)
}

// responseSize is the size of the whole response that in begins, 0 while its head
// is incomplete; err is the outcome of the last read.
func responseSize(in []byte, bodySize int, err error) (int, error) {
	n := bytes.Index(in, []byte("\r\n\r\n"))
	if n < 0 {
		return 0, err
	}
	return n + 4 + bodySize, checkHead(string(in[:n+4]), bodySize)
}
