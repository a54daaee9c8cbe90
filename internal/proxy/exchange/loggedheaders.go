package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// loggedHeaders are the values of the headers that the access log shows, in the order of Engine.LoggedRequest and
// LoggedResponse. They are copies, because filters change request headers, and the buffer of a response is released
// before the request ends.
type loggedHeaders struct {
	values observe.Headers // a nil value means that the header is missing
	memory [][]byte        // memory reused for values
}

// noteRequestHeaders records the headers of the request as received.
func (x *Exchange) noteRequestHeaders() {
	e, s := x.Client.Engine, x.ensureRare()
	n := len(e.LoggedRequest) + len(e.LoggedResponse)
	if s.logged == nil || len(s.logged.values) != n { // or it was created for another engine
		s.logged = &loggedHeaders{make(observe.Headers, n), make([][]byte, n)}
	}
	clear(s.logged.values)
	x.rec.Headers = &s.logged.values
	s.logged.note(0, e.LoggedRequest, &x.Header)
}

// noteResponseHeaders records the headers of the response when its head is sent.
func (x *Exchange) noteResponseHeaders() {
	if e := x.Client.Engine; x.rec.Headers != nil {
		x.rare.logged.note(len(e.LoggedRequest), e.LoggedResponse, &x.resp.Header)
	}
}

// startResponse sends the head of the response and the first part of its body.
//
//go:noinline
func (x *Exchange) startResponse(head Head, p Part) error {
	x.noteResponseHeaders()
	return x.Client.Response.Start(head, p)
}

// note records the values of the named headers in values[first:].
func (l *loggedHeaders) note(first int, names []string, h *message.Fields) {
	for i, name := range names {
		at := first + i
		value, found := l.memory[at][:0], false
		for j := range h.Len() {
			f := h.At(j)
			if !message.EqualFold(f.Name, name) {
				continue
			}
			if found && len(value) < accesslog.MaxHeader {
				value = append(value, ", "...)
			}
			found = true
			if room := accesslog.MaxHeader + 1 - len(value); room > 0 { // one byte more than is shown, so that the access log can see that it cuts the value
				value = append(value, f.Value[:min(len(f.Value), room)]...)
			}
		}
		l.values[at] = nil
		if found {
			l.values[at], l.memory[at] = notNil(value), value
		}
	}
}

// compact releases the memory of earlier requests, and keeps the values in no more memory than they need.
func (l *loggedHeaders) compact() {
	for i, v := range l.values {
		l.values[i] = bytes.Clone(v)
	}
	clear(l.memory)
}

// notNil returns b, or an empty slice if b is nil, which would mean that the header is missing.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
