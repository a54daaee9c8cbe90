// Package filter defines what a filter is to the data plane: what it sees of an exchange (Exchange), what it may do
// (Filter), and what it may look up while it is compiled (Env). It exists so that the engine knows no filter and a
// filter knows no other: each is in its own folder below this one, and only package table lists them.
//
// The engine compiles the filters of a rule once, when the configuration arrives, and runs them in the order of the
// list: Request functions before the request is sent to the backend, Response functions on the response head. Filters
// of a backendRef run after those of its rule, on their result. Compiled filters are shared by all connections, hold no
// state and allocate nothing per exchange.
//
// It imports config, message and upstream; never the engine, translate or k8s.io.
package filter

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Exchange is one request and its response, as far as filters are concerned. It is reused; everything in it is valid
// until the exchange ends.
type Exchange struct {
	Request *message.Request
	// Response is nil before the response head has arrived.
	Response *message.Response
	// Scheme is the client's scheme, "http" or "https".
	Scheme string
	// ListenerPort is the port of the Gateway's listener.
	ListenerPort uint16
	// Seed is the state of the exchange's random numbers, see upstream.Random.
	Seed uint64
	// Scratch holds the values that filters make: append, keep the appended part
	// (Made), never change what is there already. Once grown it costs nothing.
	Scratch []byte
	// Engine performs operations that take longer. It is nil if these are not possible, as in explain.
	Engine Engine

	reply Reply
	notes []note
}

// note is a value that a filter's Request function has left for its Response function or, with the owner decided, the
// name of a request field.
type note struct {
	owner any
	value []byte
}

// decided is the owner of the notes that Decide and DecideAll make.
var decided any = new(byte)

// notesKept is the largest number of notes whose memory an exchange keeps for the next request.
const notesKept = 32

// scratchKept is the largest scratch memory that an exchange keeps for the next request, in bytes.
const scratchKept = 16 << 10

// Engine is what a filter's Request function may call.
type Engine interface {
	// Call sends a request of the filter itself and waits for the whole response. If it returns an error, c has no
	// valid response. ErrLoop means that the exchange's request has passed too many Moongate proxies for a call.
	Call(c *Call) error
	// ReadBody waits for the whole body of the exchange's request, which is still sent to the backend. It returns
	// ErrBodyTooLarge if the body is longer than limit, ErrOverloaded if memory is too scarce for it, and any other
	// error if the client has caused it. The bytes are valid until the function returns, and must not be changed.
	ReadBody(limit int64) ([]byte, error)
	// BodyLength returns the length of the body of the exchange's request, -1 if it is not known yet.
	BodyLength() int64
	// ClientInfo describes the client of the request.
	ClientInfo() Client
}

// ErrBodyTooLarge means that a request body is longer than a filter accepts.
var ErrBodyTooLarge = errors.New("filter: the request body is too long")

// ErrOverloaded means that there is no memory for a whole request body.
var ErrOverloaded = errors.New("filter: memory is too scarce to hold the request body")

// ErrLoop means that no call is made for a request that has come back several times: its call might come back too, and
// multiply with each pass.
var ErrLoop = errors.New("filter: the request has passed too many Moongate proxies for a call")

// Call is a request of a filter itself to a backend, and the response.
type Call struct {
	Backend *upstream.Backend // never nil
	Request message.Request   // without framing fields
	Body    []byte
	// Trailers means that trailer fields are accepted.
	Trailers bool

	// The response, in its own memory. Header and Trailer have no framing fields.
	Status          int
	Header, Trailer message.Fields
	Content         []byte
}

// Client describes a client.
type Client struct {
	Address    netip.AddrPort // of the client itself if a trusted proxy reports it; the port is 0 if the proxy does not report it
	Local      netip.Addr     // the gateway's address to which the connection was made; the zero value if it is no longer known
	ServerName []byte         // in the TLS handshake, empty if there was none
	Protocol   string         // "HTTP/1.1", "HTTP/1.0" or "HTTP/2.0"
}

// Reset prepares the exchange for the next request and keeps its memory.
func (x *Exchange) Reset() {
	x.Request, x.Response, x.Scheme, x.ListenerPort, x.Seed = nil, nil, "", 0, 0
	x.Scratch = x.Scratch[:0]
	if cap(x.Scratch) > scratchKept {
		x.Scratch = nil
	}
	r := &x.reply
	r.Status, r.Reason, r.Body = 0, "", nil
	r.Header.Reset()
	clear(x.notes)
	x.notes = x.notes[:0]
	if cap(x.notes) > notesKept {
		x.notes = nil
	}
}

// Note keeps value until the exchange ends: what a filter's Request function saw of a request, which later filters may
// change before its Response function runs. The owner is a pointer to the compiled filter, and has one note.
func (x *Exchange) Note(owner any, value []byte) { x.notes = append(x.notes, note{owner, value}) }

// Noted returns the owner's note. It returns false if there is none, because its Request function did not leave one or
// did not run.
func (x *Exchange) Noted(owner any) (value []byte, ok bool) {
	for i := range x.notes {
		if x.notes[i].owner == owner {
			return x.notes[i].value, true
		}
	}
	return nil, false
}

// Decide marks a name, which must be in lower case, as the filter's decision and not the client's. The engine removes
// trailer fields with the name, which servers may merge into the header section, and with names that CGI-like servers
// take for it.
func (x *Exchange) Decide(name string) { x.Note(decided, []byte(name)) }

// Decider tells which fields a filter decides on. See Exchange.Decide.
type Decider interface {
	// Decides reports whether the filter decides on the field with the name, which may be in any case, or on one that
	// CGI-like servers take it for.
	Decides(name []byte) bool
}

// DecideBy is like Decide for all names for which d.Decides returns true. It keeps d until the exchange ends, and does
// not allocate if d is a pointer.
func (x *Exchange) DecideBy(d Decider) { x.Note(d, nil) }

// DecideAll is like Decide for all names.
func (x *Exchange) DecideAll() { x.Note(decided, nil) }

// Decided reports whether a filter has decided on the field with the name, which may be in any case, or on one that
// CGI-like servers take it for.
func (x *Exchange) Decided(name []byte) bool {
	for i := range x.notes {
		n := &x.notes[i]
		if n.owner == decided && (len(n.value) == 0 || cginame.Same(name, n.value)) {
			return true
		}
		if d, is := n.owner.(Decider); is && d.Decides(name) {
			return true
		}
	}
	return false
}

// Made returns what was appended to Scratch since it was start bytes long.
func (x *Exchange) Made(start int) []byte {
	return x.Scratch[start:len(x.Scratch):len(x.Scratch)]
}

// Reply returns the exchange's own Reply, emptied, for a filter to fill in and return.
func (x *Exchange) Reply(status int, reason string) *Reply {
	x.reply.Status, x.reply.Reason, x.reply.Body = status, reason, nil
	x.reply.Header.Reset()
	return &x.reply
}

// Fail returns the Reply of a filter that cannot let the request pass. The reason determines the status.
func (x *Exchange) Fail(reason string) *Reply { return x.Reply(0, reason) }

// Reply is a response of a filter in place of the backend's. The engine adds framing, Date and the connection's own
// fields.
type Reply struct {
	// Status is 0 if the engine is to answer as it does itself for Reason, or for what has happened to the client
	// meanwhile. Only Reason is used then.
	Status int
	// Reason is the stable reason word for the access log and metrics, such as "redirect".
	Reason string
	Header message.Fields // may be changed by Response functions before it is sent
	Body   []byte         // may be empty
}

// Filter is a compiled filter. Fields may be nil.
type Filter struct {
	// Request runs before the request is sent to the backend. A Reply (the exchange's own, see Exchange.Reply) ends the
	// request: it reaches no later filter and no backend.
	Request func(*Exchange) *Reply
	// Response runs on the head of the final response, not on interim (1xx) ones, including responses of the gateway: a
	// Reply, or a failure. Request may not have run then.
	Response func(*Exchange)
	// Preflights means that Request answers all preflight requests (CORS).
	Preflights bool
	// Mirror asks for a copy of the request; the engine sends it.
	Mirror *Mirror
	// Authorizes is the backend that Request asks whether the request is allowed, nil if it asks none.
	Authorizes *upstream.Backend
}

// Mirror describes where copies of requests are sent.
type Mirror struct {
	Backend *upstream.Backend // never nil
	// The share of requests that are copied; Denominator is never 0.
	Numerator, Denominator uint32
}

// Wanted decides by the exchange's random numbers whether this request is copied. It must be called once per exchange.
func (m *Mirror) Wanted(x *Exchange) bool {
	if m.Numerator >= m.Denominator {
		return true
	}
	if m.Numerator == 0 {
		return false
	}
	r := upstream.Random(&x.Seed) >> 32
	return r*uint64(m.Denominator)>>32 < uint64(m.Numerator)
}

// Env is what a filter may look up while it is compiled.
type Env struct {
	// Backend returns the backend with a key, nil if it does not exist; see upstream.Set.Get.
	Backend func(key string) *upstream.Backend
}

// Error is why a filter cannot be compiled. The control plane checks all of this before, so an Error means that the
// sender has another version or a bug.
type Error struct {
	Filter  string // message name, such as "RequestRedirect"
	Field   string // path within the message, such as "set[2].value"
	Problem string
	Remedy  string
}

func (e *Error) Error() string {
	return fmt.Sprintf("filter %s: %s: %s; %s", e.Filter, e.Field, e.Problem, e.Remedy)
}
