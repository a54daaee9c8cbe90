package exchange

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

const (
	// uncounted is how many bytes may be at hand of any streamed request body: what is kept to be sent again, and the part that was read last.
	uncounted = replayable + buffer.Size
	// keptShare is which part of Engine.MaxKept the body of one request may have.
	keptShare = 4
)

// keptBodies are the request bodies of which more than uncounted is at hand: those that are read whole, or kept to be sent again, because configuration says so.
type keptBodies struct {
	bytes atomic.Int64
	mu    sync.Mutex // comes behind those of bodies
	all   map[*keptBody]struct{}
}

// keptBody is one of them.
type keptBody struct {
	counted int64        // bytes, with mu of the body
	mu      sync.Mutex   // comes before that of the body
	body    *requestBody // nil once its exchange has ended
}

// Kept is how many bytes are at hand of those request bodies of which there is more than of any.
func (e *Engine) Kept() int64 { return e.keptBodies.bytes.Load() }

// keptScarce reports whether no more is to be kept of request bodies than of any request.
func (e *Engine) keptScarce() bool {
	return e.Overloaded.Load() || e.MaxKept > 0 && e.Kept() > e.MaxKept
}

// mostKept is how many bytes of the body of one request are kept at most.
func (e *Engine) mostKept() int64 {
	if e.MaxKept == 0 {
		return math.MaxInt64
	}
	return max(e.MaxKept/keptShare, uncounted)
}

// ForgetBodies ends requests whose body is being read whole, and has others forget what they have sent, but for what is kept of any request. Overloaded has become true.
func (e *Engine) ForgetBodies() {
	e.keptBodies.mu.Lock()
	all := make([]*keptBody, 0, len(e.keptBodies.all))
	for k := range e.keptBodies.all {
		all = append(all, k)
	}
	e.keptBodies.mu.Unlock()
	for _, k := range all {
		k.mu.Lock()
		if k.body != nil {
			k.body.letGo()
		}
		k.mu.Unlock()
	}
}

// letGo is ForgetBodies for one.
func (b *requestBody) letGo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filling && !b.complete {
		b.heldBack = true
		b.x.Client.Body.Stop()
		return
	}
	if b.cursor.number == 0 { // nothing was sent, and the rule may not be known
		return
	}
	b.forget()
}

// count follows each change of how much of the body is at hand; mu is held.
func (b *requestBody) count() {
	at := b.end - b.from
	if at <= uncounted {
		at = 0
	}
	c, k := b.x.Client, b.kept
	switch {
	case k == nil && at == 0:
		return
	case k == nil:
		k = &keptBody{body: b}
		b.kept = k
		c.Engine.keptBodies.add(k)
	}
	more := at - k.counted
	k.counted = at
	c.Engine.keptBodies.bytes.Add(more)
	if r, ok := c.Response.(keeper); ok && more != 0 {
		r.Keep(more)
	}
}

func (all *keptBodies) add(k *keptBody) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.all == nil {
		all.all = map[*keptBody]struct{}{}
	}
	all.all[k] = struct{}{}
}

// endKept comes before the end of the exchange; mu is not held, and no sender is left.
func (b *requestBody) endKept() {
	k := b.kept
	if k == nil {
		return
	}
	k.mu.Lock() // nobody looks at the body from now on
	k.body = nil
	k.mu.Unlock()
	all := &b.x.Client.Engine.keptBodies
	all.mu.Lock()
	delete(all.all, k)
	all.mu.Unlock()
	b.kept = nil
}
