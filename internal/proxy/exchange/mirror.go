package exchange

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Bounds of mirroring. A copy that would exceed one is dropped and counted. The request itself never waits for its
// copies.
const (
	maxMirrors    = 1024             // copies in progress in the process; see mirrors.enter
	ownMirrors    = 8                // of a namespace, even if maxMirrors is used up
	mirrorQueue   = 256 << 10        // bytes of a body that wait to be sent, for each copy
	mirrorTimeout = 30 * time.Second // for a copy from start to end
)

// mirrors counts the copies in progress.
type mirrors struct {
	mu      sync.Mutex
	active  int
	of      map[string]int // of active, by namespace of the route
	to      map[mirrorOf]int
	running sync.WaitGroup
	// held is how many bytes of bodies longer than mirrorQueue are held for copies. It is limited to what one request may
	// keep, so that copies do not take the memory of requests.
	held atomic.Int64
}

// mirrorOf identifies the copies that a namespace sends to a backend.
type mirrorOf struct {
	namespace string
	backend   *upstream.Backend
}

// enter counts a copy to b for a route of the namespace. It returns false if there are too many. A namespace may have
// as many copies in progress as there are free places, and therefore at most half of the places; further namespaces
// share the rest in the same way. Each namespace may have ownMirrors in any case. The share of a namespace is divided
// in the same way among its mirrors, so that a slow one leaves half of it to the others.
func (m *mirrors) enter(namespace string, b *upstream.Backend) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	of, to := m.of[namespace], mirrorOf{namespace, b}
	more := (maxMirrors - m.active - of) / 2 // how many more the namespace may have
	if of >= ownMirrors && m.to[to] >= more {
		return false
	}
	if m.to == nil {
		m.of, m.to = make(map[string]int), make(map[mirrorOf]int)
	}
	m.active++
	m.of[namespace]++
	m.to[to]++
	m.running.Add(1)
	return true
}

func (m *mirrors) leave(namespace string, b *upstream.Backend) {
	to := mirrorOf{namespace, b}
	m.mu.Lock()
	m.active--
	if m.of[namespace]--; m.of[namespace] == 0 {
		delete(m.of, namespace)
	}
	if m.to[to]--; m.to[to] == 0 {
		delete(m.to, to)
	}
	m.mu.Unlock()
	m.running.Done()
}

func (m *mirrors) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active
}

// mirrored is the copy of one request (HTTPRouteFilter RequestMirror). It shares no memory with the request, which it
// may outlive.
type mirrored struct {
	engine    *Engine
	namespace string
	backend   *upstream.Backend
	identity  *upstream.Identity
	seed      uint64
	from      upstream.For       // the client
	info      *upstream.PickInfo // nil if the load balancer needs nothing
	req       Request
	body      *mirroredBody // nil if req has the whole body
	counted   int64         // bytes of the whole body that are counted in mirrors.held
	// broken means that the copy is incomplete and must not look complete.
	broken atomic.Bool
	// late means that it is broken because the mirror is slower than the client.
	late atomic.Bool
}

// mirroredBody is the part of a streamed body that waits to be sent in a copy.
type mirroredBody struct {
	more chan struct{} // holds one value if there may be more

	mu      sync.Mutex
	waiting []byte
	pending int // bytes that wait, or are being sent
	ended   bool
	trailer message.Fields // valid once ended
}

// add copies data. It returns false if there is no room.
func (b *mirroredBody) add(data []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending+len(data) > mirrorQueue {
		return false
	}
	b.pending += len(data)
	b.waiting = append(b.waiting, data...)
	b.tell()
	return true
}

// end records that only trailer follows, which may be nil.
func (b *mirroredBody) end(trailer *message.Fields) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = true; trailer != nil {
		cloneFields(&b.trailer, trailer)
	}
	b.tell()
}

func (b *mirroredBody) tell() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// take returns the bytes that wait, and whether they are the last. sent is how many of the bytes taken before were
// sent.
func (b *mirroredBody) take(sent int) (data []byte, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending -= sent
	data, b.waiting = b.waiting, nil
	return data, b.ended
}

// startMirrors sends the copies that the filters ask for. It does not keep head. A request that has already passed a
// Moongate proxy is not copied: if it were a copy that has come back, each pass would multiply it. A client can fake
// such a pass to prevent copies; the count of dropped copies shows it.
func (x *Exchange) startMirrors(list []*filter.Mirror, head *message.Request) {
	if x.connects != snapshot.RefuseConnect { // a CONNECT has nothing to copy
		return
	}
	for _, f := range list {
		if !f.Wanted(&x.fx) {
			continue
		}
		if message.Passes(&x.Header) > 1 {
			f.Backend.MirrorDropped(upstream.MirrorLooped)
			continue
		}
		backend := f.Backend.As(x.listener.Identity)
		if backend == nil {
			f.Backend.MirrorDropped(upstream.MirrorFailed)
			continue
		}
		e := x.Client.Engine
		if !e.mirrors.enter(x.rule.Namespace, backend) {
			f.Backend.MirrorDropped(upstream.MirrorOverloaded)
			continue
		}
		m := &mirrored{engine: e, namespace: x.rule.Namespace, backend: backend, identity: x.listener.Identity, seed: upstream.Random(&x.fx.Seed), req: x.Request}
		if settings := backend.Balancing(); settings != nil {
			m.info = new(upstream.PickInfo)
			x.describe(settings, m.info)
		}
		m.req.ExpectContinue, m.req.Target, m.req.Upgrade, m.req.Extended = false, nil, nil, false // the body follows without a 100, and no tunnel is opened
		m.from = x.connectionFor()
		m.req.Request = cloneHead(head)
		if !m.takeWhole(x) {
			m.body = &mirroredBody{more: make(chan struct{}, 1)}
			rare := x.ensureRare()
			rare.copies = append(rare.copies, m)
			x.body.each(m.feed)
		}
		go m.run()
	}
}

// takeWhole copies a body of which all is at hand. It returns false if the body is to be copied in parts instead, for
// which a long one has no room.
func (m *mirrored) takeWhole(x *Exchange) bool {
	if !x.Streamed {
		m.req.Whole = bytes.Clone(x.Whole)
		return true
	}
	if x.Framing != http1.Length || !x.body.allAtHand() || m.engine.keptScarce() {
		return false
	}
	if t := x.body.trailer(); t != nil && t.Len() > 0 {
		return false
	}
	if n := x.body.end; n > mirrorQueue {
		if m.counted = n; m.engine.mirrors.held.Add(n) > m.engine.mostKept() {
			m.engine.mirrors.held.Add(-n)
			m.counted = 0
			return false
		}
	}
	m.req.Whole, m.req.Streamed = bytes.Clone(x.body.joined()), false
	return true
}

// cloneHead copies the parts of a head that are sent, into new memory.
func cloneHead(r *message.Request) message.Request {
	out := message.Request{
		Method: bytes.Clone(r.Method), Host: bytes.Clone(r.Host), Path: bytes.Clone(r.Path),
		Query: bytes.Clone(r.Query), HasQuery: r.HasQuery,
	}
	cloneFields(&out.Header, &r.Header)
	return out
}

func cloneFields(dst, src *message.Fields) {
	size := 0
	for i := range src.Len() {
		size += len(src.At(i).Name) + len(src.At(i).Value)
	}
	b := make([]byte, 0, size)
	for i := range src.Len() {
		f, start := src.At(i), len(b)
		b = append(append(b, f.Name...), f.Value...)
		middle := start + len(f.Name)
		dst.Add(b[start:middle:middle], b[middle:len(b):len(b)])
	}
}

// feedMirrors copies a part of a streamed body.
func (x *Exchange) feedMirrors(data []byte) {
	if x.rare == nil {
		return
	}
	for _, m := range x.rare.copies {
		m.feed(data)
	}
}

// feed copies a part for the mirror, unless the mirror has fallen behind.
func (m *mirrored) feed(data []byte) {
	if !m.broken.Load() && !m.body.add(data) {
		m.late.Store(true)
		m.broken.Store(true)
	}
}

// endMirrors records that a streamed body has ended, or has broken off.
func (x *Exchange) endMirrors(clean bool) {
	if x.rare == nil {
		return
	}
	list := x.rare.copies
	for i, m := range list {
		if clean {
			m.body.end(x.Client.Body.Trailer())
		} else {
			m.broken.Store(true)
			m.body.end(nil)
		}
		list[i] = nil
	}
	x.rare.copies = list[:0]
}

func (m *mirrored) run() {
	defer func() {
		if v := recover(); v != nil {
			m.engine.Observer.Panicked("mirror", v)
			m.broken.Store(true)
			m.backend.MirrorDropped(upstream.MirrorFailed)
		}
		m.engine.mirrors.held.Add(-m.counted)
		m.engine.mirrors.leave(m.namespace, m.backend)
	}()
	var ep *upstream.Endpoint
	for again := true; again && ep == nil; {
		again = m.backend.Resolving()
		ep = m.backend.PickForAs(m.identity, &m.seed, new(upstream.Tried), m.info)
		again = again && ep == nil && m.backend.AwaitHost(m.engine.Background, time.Time{})
	}
	if ep == nil || !m.send(ep) {
		m.broken.Store(true) // so that feed copies no more
		why := upstream.MirrorFailed
		if m.late.Load() {
			why = upstream.MirrorOverloaded
		}
		m.backend.MirrorDropped(why)
	}
}

// send sends the copy and discards the response. It returns false if that failed.
func (m *mirrored) send(ep *upstream.Endpoint) bool {
	admitted, ok := m.backend.Admit()
	if !ok {
		return false
	}
	if admitted != nil {
		defer admitted.Done()
	}
	ep.Begin()
	defer ep.End()
	deadline := time.Now().Add(mirrorTimeout)
	c, err := m.engine.call(m.engine.Background, ep, m.from, deadline, &m.req, m.req.Whole, m.body == nil)
	if err != nil {
		return false
	}
	complete := false
	defer func() { c.end(complete) }() // also if it panics
	if m.body != nil && !m.write(c, deadline) {
		return false
	}
	var resp message.Response
	if c.readHead(m.req.Method, &resp) != nil {
		return false
	}
	reportCall(ep, resp.Status, &resp.Header, nil)
	complete = c.discard() == nil
	return complete
}

// write sends a streamed body, which must arrive by the deadline.
func (m *mirrored) write(c *call, deadline time.Time) bool {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	sent := 0
	for {
		data, ended := m.body.take(sent)
		if sent = len(data); sent > 0 {
			if c.write(data, false, nil) != nil {
				return false
			}
			continue
		}
		if ended {
			return !m.broken.Load() && c.write(nil, true, &m.body.trailer) == nil
		}
		select {
		case <-m.body.more:
		case <-late.C: // the client may be arbitrarily slow
			return false
		}
	}
}
