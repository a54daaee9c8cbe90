package filter

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestGRPC: what a call sends is read as it is, and nothing is read from what is no answer.
func TestGRPC(t *testing.T) {
	body, err := GRPCBody(wrapperspb.String("message"))
	if err != nil {
		t.Fatal(err)
	}
	sent := NewGRPC(nil, []byte("a"), []byte("/s/M"), body)
	answer := func(change func(*Call)) *Call {
		c := &Call{Status: 200, Content: append([]byte(nil), sent.Body...)}
		c.Header.Add([]byte("Content-Type"), []byte("application/grpc+proto"))
		c.Trailer.Add([]byte("Grpc-Status"), []byte("0"))
		change(c)
		return c
	}
	if c := answer(func(*Call) {}); c.GRPCStatus() != "0" {
		t.Errorf("status %q", c.GRPCStatus())
	} else {
		msg, ok := c.GRPCMessage()
		var text wrapperspb.StringValue
		if err := proto.Unmarshal(msg, &text); !ok || err != nil || text.Value != "message" {
			t.Errorf("%q, %v, %v", msg, ok, err)
		}
	}
	early := &Call{}
	early.Header.Add([]byte("grpc-status"), []byte("12"))
	if early.GRPCStatus() != "12" {
		t.Errorf("status %q of a response without a body", early.GRPCStatus())
	}
	for name, change := range map[string]func(*Call){
		"HTTP status":  func(c *Call) { c.Status = 502 },
		"content type": func(c *Call) { c.Header.Reset() },
		"empty":        func(c *Call) { c.Content = nil },
		"compressed":   func(c *Call) { c.Content[0] = 1 },
		"too short":    func(c *Call) { c.Content = c.Content[:len(c.Content)-1] },
		"two messages": func(c *Call) { c.Content = append(c.Content, c.Content...) },
	} {
		if msg, ok := answer(change).GRPCMessage(); ok {
			t.Errorf("%s: %q", name, msg)
		}
	}
}
