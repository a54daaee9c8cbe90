package http1

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func TestMaxForwards(t *testing.T) {
	for _, c := range []struct {
		method, fields string // fields are separated by ";"
		n              int
		bounded        bool
	}{
		{"OPTIONS", "Max-Forwards: 0", 0, true},
		{"TRACE", "X-A: b;max-forwards: 010", 10, true},
		{"OPTIONS", "Max-Forwards: 99999999999999999999999999999999", 1<<31 - 1, true},
		{"GET", "Max-Forwards: 0", 0, false},
		{"options", "Max-Forwards: 0", 0, false},
		{"OPTIONS", "X-Max-Forwards: 0", 0, false},
		{"OPTIONS", "Max-Forwards: ", 0, false},
		{"OPTIONS", "Max-Forwards: -1", 0, false},
		{"OPTIONS", "Max-Forwards: 1, 2", 0, false},
		{"OPTIONS", "Max-Forwards: 0;Max-Forwards: 0", 0, false},
	} {
		req := message.Request{Method: []byte(c.method)}
		for _, f := range strings.Split(c.fields, ";") {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Add([]byte(name), []byte(value))
		}
		if f, n := MaxForwards(&req); n != c.n || (f != nil) != c.bounded {
			t.Errorf("%s with %s: %d, %v", c.method, c.fields, n, f)
		}
	}
}
