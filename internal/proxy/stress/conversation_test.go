package stress

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of the fields by which a request and its response are known.
const (
	idField      = "X-Id"
	lengthField  = "X-Body-Length" // how long the request's body is
	attemptField = "X-Attempt"
	sumField     = "X-Sum" // in trailer sections
	echoField    = "X-Echo"
)

// conversation is one request with all that became of it.
type conversation struct {
	s       *run
	id      uint64
	client  string // which client, and by what protocol
	method  string
	class   string // the first element of the path: which route is meant
	body    bool   // the request has one, which may be empty
	length  int    // of the body
	trailer bool   // the request has a trailer section
	// declared: by HTTP/2, the request has a content-length.
	declared bool
	// malformed: the client breaks the rules, so that no backend may ever see the request's end.
	malformed bool
	// calm: the request was made when nobody did any harm any more.
	calm bool

	mu       sync.Mutex
	attempts []*attempt
	events   []event
	// unsent: the client gave up before it had sent all.
	unsent bool
}

type event struct {
	at   time.Duration
	text string
}

// attempt is the request as one backend saw it.
type attempt struct {
	n       int
	backend string
	plan    *plan
	// refused: the backend has said that it has not processed the request. Guarded by the conversation's mu.
	refused bool
	// processed: the backend has begun to process it. Guarded by the same.
	processed bool
	// copied: it is a mirror's.
	copied bool
}

func (c *conversation) path() string { return "/" + c.class + "/" + c.name() }

func (c *conversation) name() string { return fmt.Sprintf("%016x", c.id) }

// repeatable reports whether a request may be sent again though a backend may have processed it (RFC 9110
// section 9.2.2).
func (c *conversation) repeatable() bool { return c.method != "POST" }

// note remembers what happened.
func (c *conversation) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) < 200 {
		c.events = append(c.events, event{time.Since(c.s.start), fmt.Sprintf(format, args...)})
	}
}

// attempt notes that the request has come to a backend.
func (c *conversation) attempt(backend string, copied bool) *attempt {
	c.mu.Lock()
	a := &attempt{n: len(c.attempts), backend: backend, copied: copied}
	a.plan = c.s.plan(c, a)
	c.attempts = append(c.attempts, a)
	c.mu.Unlock()
	c.note("attempt %d at %s", a.n, backend)
	return a
}

// process notes that a backend begins to process an attempt that it has not refused, and judges whether it may be
// there at all.
func (c *conversation) process(a *attempt) {
	if a.copied {
		return
	}
	c.mu.Lock()
	a.processed = true
	var other *attempt
	for _, o := range c.attempts {
		if o != a && o.processed && !o.refused {
			other = o
		}
	}
	again := other != nil && !a.refused && !c.repeatable()
	c.mu.Unlock()
	if again {
		c.s.fail(c, "%s is processed by attempt %d though attempt %d, at %s, may have been processed, too", c.method, a.n, other.n, other.backend)
	}
}

// refuse marks an attempt as one that the backend declares not to have processed.
func (c *conversation) refuse(a *attempt, how string) {
	c.mu.Lock()
	a.refused = true
	c.mu.Unlock()
	c.note("attempt %d refused by %s", a.n, how)
}

// findAttempt finds an attempt by what a response says.
func (c *conversation) findAttempt(text string) *attempt {
	n, err := strconv.Atoi(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || n < 0 || n >= len(c.attempts) {
		return nil
	}
	return c.attempts[n]
}

func (c *conversation) isUnsent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsent
}

func (c *conversation) setUnsent() {
	c.mu.Lock()
	c.unsent = true
	c.mu.Unlock()
}

// sending notes that the end of the request is about to be sent.
func (c *conversation) sending() {
	c.mu.Lock()
	c.unsent = false
	c.mu.Unlock()
}

// String tells the whole story.
func (c *conversation) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s, body of %d bytes", c.client, c.method, c.path(), c.length)
	if c.trailer {
		b.WriteString(", trailers")
	}
	if c.malformed {
		b.WriteString(", malformed")
	}
	b.WriteByte('\n')
	for _, a := range c.attempts {
		fmt.Fprintf(&b, "  plan of attempt %d: %v\n", a.n, a.plan)
	}
	for _, e := range c.events {
		fmt.Fprintf(&b, "  %9.3fms %s\n", float64(e.at.Microseconds())/1000, e.text)
	}
	return b.String()
}

// register keeps the conversations that are under way, and for a while those that have ended: their requests may
// be on their way still.
type register struct {
	mu    sync.Mutex
	known map[uint64]*conversation
	ended []uint64
	next  int
}

// remembered is how many conversations are kept that have ended.
const remembered = 20000

func (r *register) add(c *conversation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[uint64]*conversation{}
	}
	r.known[c.id] = c
}

func (r *register) end(c *conversation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ended) < remembered {
		r.ended = append(r.ended, c.id)
		return
	}
	delete(r.known, r.ended[r.next])
	r.ended[r.next] = c.id
	r.next = (r.next + 1) % remembered
}

func (r *register) find(id uint64) *conversation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[id]
}

// counts are how often something happened, so that a run shows what it has exercised.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
}

// sum adds up those that begin with a prefix.
func (c *counts) sum(prefix string) (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, n := range c.n {
		if strings.HasPrefix(what, prefix) {
			sum += n
		}
	}
	return sum
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for what, n := range c.n {
		lines = append(lines, fmt.Sprintf("%8d %s", n, what))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[9:], b[9:]) })
	return strings.Join(lines, "\n")
}
