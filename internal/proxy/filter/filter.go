// Package filter says what a filter is to the data plane: what it sees of an
// exchange (Exchange), what it may do (Filter), and what it may look up while
// it is made (Env). It exists so that the engine knows no filter and a filter
// knows no other: each lives in its own folder below this one, and only package
// table lists them.
//
// The engine compiles the filters of a rule once, when the configuration
// arrives, and runs them in the order of the list: Request functions before the
// backend is asked, Response functions on the response head. Filters of a
// backendRef run after those of its rule, on what those left. Compiled filters
// are shared by all connections, hold no state and allocate nothing per exchange.
//
// It imports config, message and upstream; never the engine, translate or k8s.io.
package filter

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Exchange is one request and its response, as far as filters are concerned. It
// is reused; everything in it is valid until the exchange ends.
type Exchange struct {
	Request *message.Request
	// Response is nil before the response head is there.
	Response *message.Response
	// Scheme is what the client spoke, "http" or "https".
	Scheme string
	// ListenerPort is the port of the Gateway's listener.
	ListenerPort uint16
	// Seed is the state of the exchange's random numbers, see upstream.Random.
	Seed uint64
	// Scratch holds the values that filters make: append, keep the appended part
	// (Made), never change what is there already. Once grown it costs nothing.
	Scratch []byte
	// Engine is asked for what takes longer. It is nil where nothing can be asked, as in explain.
	Engine Engine

	reply Reply
	notes []note
}

// note is what a filter's Request function has left for its Response function, or with the owner decided the name of a request field.
type note struct {
	owner any
	value []byte
}

// decided is the owner of the notes that Decide makes.
var decided any = new(byte)

// notesKept bounds the notes whose room an exchange keeps for the next.
const notesKept = 32

// scratchKept bounds the scratch memory that an exchange keeps for the next, in bytes.
const scratchKept = 16 << 10

// Engine is what a filter's Request function may have the engine do.
type Engine interface {
	// Call sends a request of the filter's own and waits for the whole response. An error is that none has come: c's response is not to be used. ErrLoop is
	// that the exchange's request has passed too many proxies of Moongate for that.
	Call(c *Call) error
	// ReadBody waits for the whole body of the exchange's request, which goes to the backend as if nobody had read it. One that is longer than limit
	// is ErrBodyTooLarge, one for which memory is too scarce ErrOverloaded, and any other error the client's doing. The bytes are valid until the function returns, and not to be changed.
	ReadBody(limit int64) ([]byte, error)
	// BodyLength is how long the body of the exchange's request is, -1 where that is not known yet.
	BodyLength() int64
	// ClientInfo describes who the request comes from.
	ClientInfo() Client
}

// ErrBodyTooLarge is that a request body is longer than a filter takes.
var ErrBodyTooLarge = errors.New("filter: the request body is too long")

// ErrOverloaded is that there is no memory for a whole request body.
var ErrOverloaded = errors.New("filter: memory is too scarce to hold the request body")

// ErrLoop is that no call is made for a request which has come back several times: its call might do that too, and multiply it with each pass.
var ErrLoop = errors.New("filter: the request has passed too many proxies of Moongate for a call")

// Call is a request of a filter's own to a backend, and the response.
type Call struct {
	Backend *upstream.Backend // never nil
	Request message.Request   // without fields of framing
	Body    []byte
	// Trailers tells that trailer fields are understood.
	Trailers bool

	// The response, in memory of its own. Header and Trailer have no fields of framing.
	Status          int
	Header, Trailer message.Fields
	Content         []byte
}

// Client is what is known of a client.
type Client struct {
	Address    netip.AddrPort // of the client itself, where a trusted proxy tells; the port is 0 where that does not
	Local      netip.Addr     // the gateway's, which the connection was made to; the zero value where it is not known any more
	ServerName []byte         // in the TLS handshake, empty without
	Protocol   string         // "HTTP/1.1", "HTTP/1.0" or "HTTP/2.0"
}

// Reset makes the exchange ready for the next request and keeps its memory.
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

// Note keeps value until the exchange ends: what a filter's Request function saw of a request, which later
// filters may change before its Response function runs. The owner is the compiled filter, as a pointer, and has one note.
func (x *Exchange) Note(owner any, value []byte) { x.notes = append(x.notes, note{owner, value}) }

// Noted returns the owner's note; false is that it has none, because its Request function did not leave one or did not run.
func (x *Exchange) Noted(owner any) (value []byte, ok bool) {
	for i := range x.notes {
		if x.notes[i].owner == owner {
			return x.notes[i].value, true
		}
	}
	return nil, false
}

// Decide says that what the request has under a name, which is in lower case, is the filter's decision and not the client's. The engine drops trailer fields of the
// name, which servers may merge into the header section, also where underscores stand for hyphens.
func (x *Exchange) Decide(name string) { x.Note(decided, []byte(name)) }

// Decider knows the names of fields that a filter decides on, see Exchange.Decide.
type Decider interface {
	// Decides reports whether a field of that name, in any spelling, is the filter's decision.
	Decides(name []byte) bool
}

// DecideBy is Decide for the names that d knows. It keeps d until the exchange ends and allocates nothing if d is a pointer.
func (x *Exchange) DecideBy(d Decider) { x.Note(d, nil) }

// DecideAll is Decide for all names.
func (x *Exchange) DecideAll() { x.Note(decided, nil) }

// Decided reports whether a filter has decided on a name, in any spelling.
func (x *Exchange) Decided(name []byte) bool {
	for i := range x.notes {
		n := &x.notes[i]
		if n.owner == decided && (len(n.value) == 0 || message.EqualFoldHyphens(name, n.value)) {
			return true
		}
		if d, is := n.owner.(Decider); is && d.Decides(name) {
			return true
		}
	}
	return false
}

// Made is what was appended to Scratch since it was start bytes long.
func (x *Exchange) Made(start int) []byte {
	return x.Scratch[start:len(x.Scratch):len(x.Scratch)]
}

// Reply is the exchange's own Reply, emptied, for a filter to fill and return.
func (x *Exchange) Reply(status int, reason string) *Reply {
	x.reply.Status, x.reply.Reason, x.reply.Body = status, reason, nil
	x.reply.Header.Reset()
	return &x.reply
}

// Fail is the Reply of a filter that cannot let the request pass, for a reason that decides the status.
func (x *Exchange) Fail(reason string) *Reply { return x.Reply(0, reason) }

// Reply is a response that a filter gives instead of the backend. The engine adds
// framing, Date and the connection's own fields.
type Reply struct {
	// Status is 0 where the engine answers as it does itself for Reason, or for what has become of the client meanwhile. All but Reason is unused then.
	Status int
	// Reason is the stable reason word of access log and metrics, such as "redirect".
	Reason string
	Header message.Fields // may be changed by Response functions before it is sent
	Body   []byte         // may be empty
}

// Filter is a compiled filter. Fields that are nil do nothing.
type Filter struct {
	// Request runs before the backend is asked. A Reply (the exchange's own, see
	// Exchange.Reply) ends the request: no later filter and no backend sees it.
	Request func(*Exchange) *Reply
	// Response runs on the head of the final response, not on interim (1xx) ones, also on one that the
	// gateway made: a Reply, or a failure. Request may not have run then.
	Response func(*Exchange)
	// Preflights reports whether Request answers all preflight requests (CORS).
	Preflights bool
	// Mirror asks for a copy of the request; the engine sends it.
	Mirror *Mirror
	// Authorizes is the backend that Request asks whether the request may go on, nil where it asks none.
	Authorizes *upstream.Backend
}

// Mirror describes where copies of requests go.
type Mirror struct {
	Backend *upstream.Backend // never nil
	// The share of requests that is copied; Denominator is never 0.
	Numerator, Denominator uint32
}

// Wanted decides by the exchange's random numbers whether this request is copied.
// Ask once per exchange.
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
	// Backend finds a backend by its key, nil where it does not exist; see upstream.Set.Get.
	Backend func(key string) *upstream.Backend
}

// Error says why a filter cannot be compiled. The control plane checks all of this
// before, so that an Error points at a sender of another version or a defect.
type Error struct {
	Filter  string // message name, such as "RequestRedirect"
	Field   string // path within the message, such as "set[2].value"
	Problem string
	Remedy  string
}

func (e *Error) Error() string {
	return fmt.Sprintf("filter %s: %s: %s; %s", e.Filter, e.Field, e.Problem, e.Remedy)
}
