package exchange

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

const (
	// uncounted is how many bytes may be held for any streamed request body: those kept to be sent again, and the part
	// that was read last.
	uncounted = replayable + buffer.Size
	// The body of one request may have 1/keptShare of Engine.MaxKept.
	keptShare = 4
)

// keptBodies are the request bodies of which more than uncounted is held: those that are read completely, or kept to be
// sent again, because configuration requires it.
type keptBodies struct {
	bytes atomic.Int64
	mu    sync.Mutex // locked after the mu of a body
	all   map[*keptBody]struct{}
}

// keptBody is one of the keptBodies.
type keptBody struct {
	counted int64        // bytes; guarded by mu of the body
	mu      sync.Mutex   // locked before the mu of the body
	body    *requestBody // nil once its exchange has ended
}

// Kept returns how many bytes are held for request bodies of which more than uncounted is held.
func (e *Engine) Kept() int64 { return e.keptBodies.bytes.Load() }

// keptScarce reports whether no more than uncounted is to be kept of any request body.
func (e *Engine) keptScarce() bool {
	return e.Overloaded.Load() || e.MaxKept > 0 && e.Kept() > e.MaxKept
}

// mostKept returns the largest number of bytes of one request body that are kept.
func (e *Engine) mostKept() int64 {
	if e.MaxKept == 0 {
		return math.MaxInt64
	}
	return max(e.MaxKept/keptShare, uncounted)
}

// ForgetBodies ends requests whose body is being read completely, and makes others discard what they have sent, except
// for what is kept for any request. It is called when Overloaded has become true.
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

// letGo is ForgetBodies for one body.
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

// count must be called after each change of how much of the body is held. mu must be held.
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

// endKept must be called before the end of the exchange. mu must not be held, and no sender may be left.
func (b *requestBody) endKept() {
	k := b.kept
	if k == nil {
		return
	}
	k.mu.Lock() // nothing accesses the body from now on
	k.body = nil
	k.mu.Unlock()
	all := &b.x.Client.Engine.keptBodies
	all.mu.Lock()
	delete(all.all, k)
	all.mu.Unlock()
	b.kept = nil
}
