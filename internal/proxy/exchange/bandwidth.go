package exchange

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/bandwidth"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// maxPause is how long one wait is at most: the sweeper looks after each anew.
const maxPause = 5 * time.Second

// pacing is what an exchange needs to hold its bodies up. It is kept for later exchanges.
type pacing struct {
	timer *time.Timer // stopped while nothing is waited for
	// woken has something where the wait for the time of a part is to end early.
	woken chan struct{}
	// inTurn and inTurnUp are the places of the response and of the request among those that wait.
	inTurn, inTurnUp bandwidth.Waiter

	counted bool // among Engine.paced
	// holds is how many bytes the response holds a part of which waits in a buffer; 0 while the backend or the client is waited for.
	holds atomic.Uint64
	ended atomic.Bool // the response is to end, as memory is scarce

	trailer message.Fields // made here, where the backend's response has none
	values  [len(snapshot.DelayTrailers)][20]byte
	delays
}

// delays are how long bodies of the present exchange took, and by how much of that they were held up.
type delays struct {
	responseBegun          time.Duration // by BandwidthNow; 0 before the first part
	response, responseHeld time.Duration
	requestBegun           time.Duration
	request, requestHeld   time.Duration // mu of the body is held
}

// errScarce ends a response that is held up while memory is scarce.
var errScarce = errors.New("a response that is held up ends for its memory")

// pacedResponses are the responses that were held up and have not ended. Each of them has a buffer with what waits for its time.
type pacedResponses struct {
	mu    sync.Mutex
	since map[*pacing]time.Duration // when each was held up first, by BandwidthNow
}

// pacedFor is for how long a response was held up at least that EndPaced ends.
const pacedFor = 5 * time.Second

// EndPaced ends responses that are held up, those first that are for longest, until they have had so many bytes of memory together, and returns how many, and what they have held. Those that
// wait for their backend hold no buffer, so that ending them would free nothing; for those that wait for their client see client.Set.EndStuckResponses.
func (e *Engine) EndPaced(bytes uint64) (ended int, freed uint64) {
	r := &e.paced
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(r.since), func(a, b *pacing) int { return cmp.Compare(r.since[a], r.since[b]) })
	now := snapshot.BandwidthNow()
	for _, p := range all {
		if freed >= bytes || r.since[p] > now-pacedFor {
			break
		}
		n := p.holds.Load()
		if n == 0 {
			continue
		}
		delete(r.since, p)
		p.ended.Store(true)
		p.interrupt()
		freed += n
		ended++
	}
	return ended, freed
}

// countPaced notes that the response is held up, until endPacing.
func (x *Exchange) countPaced(p *pacing) {
	if p.counted {
		return
	}
	p.counted = true
	r := &x.Client.Engine.paced
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == nil {
		r.since = map[*pacing]time.Duration{}
	}
	r.since[p] = snapshot.BandwidthNow()
}

// endPacing comes before the end of the exchange.
func (x *Exchange) endPacing() {
	if x.seldom == nil || x.seldom.pacing == nil || !x.seldom.pacing.counted {
		return
	}
	p, r := x.seldom.pacing, &x.Client.Engine.paced
	r.mu.Lock()
	delete(r.since, p)
	r.mu.Unlock()
	p.counted = false
	p.ended.Store(false)
}

// interrupt implements interrupter.
func (p *pacing) interrupt() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// paces returns what the exchange needs to hold bodies up.
func (x *Exchange) paces() *pacing {
	s := x.mayNeed()
	if s.pacing == nil {
		p := &pacing{woken: make(chan struct{}, 1)}
		p.inTurn.Wake = p.interrupt
		p.inTurnUp.Wake = func() { go x.body.wake() } // who calls it may hold the lock of another body
		s.pacing = p
	}
	return s.pacing
}

// beginPacing comes before any attempt of a request whose rule limits bandwidth.
func (x *Exchange) beginPacing(b *snapshot.BandwidthLimit) {
	x.paces().delays = delays{}
	if b.Request != nil && len(x.Whole) > 0 {
		x.body.takeWhole()
	}
}

// responseLimiter is what holds the response up, nil where nothing does.
func (x *Exchange) responseLimiter() *bandwidth.Limiter {
	if x.rule == nil || x.rule.Bandwidth == nil {
		return nil
	}
	return x.rule.Bandwidth.Response
}

// requestLimiter is what holds the request up, nil where nothing does.
func (x *Exchange) requestLimiter() *bandwidth.Limiter {
	if x.rule == nil || x.rule.Bandwidth == nil {
		return nil
	}
	return x.rule.Bandwidth.Request
}

// sendPart sends a part of the body of a response, behind its head. Where it is held up it goes in smaller ones, each when its time has come.
func (x *Exchange) sendPart(a *attempt, part Part) error {
	l := x.responseLimiter()
	if l == nil || part.At == part.End {
		if l != nil && part.Last {
			x.tellDelays(&part)
		}
		return x.sent(part, x.Client.Response.More(part))
	}
	for at, end := part.At, part.End; ; {
		n := min(l.Part(), end-at)
		if err := x.pace(a, l, n, Holds(part.IsLittle())); err != nil {
			return err
		}
		p := Part{Buf: part.Buf[:at+n], At: at, End: at + n} // without room behind it, as that has the next one
		if at += n; at == end {
			if p.Last, p.Trailer = part.Last, part.Trailer; p.Last {
				x.tellDelays(&p)
			}
		}
		x.limitWrite()
		if err := x.sent(p, x.Client.Response.More(p)); err != nil || at == end {
			return err
		}
		x.movedNow()
	}
}

// pace waits until n bytes of the response may pass, which stand in a buffer for which it holds so much. It fails where the attempt would fail to read, and with errScarce.
func (x *Exchange) pace(a *attempt, l *bandwidth.Limiter, n int, holds uint64) error {
	p, now := x.paces(), snapshot.BandwidthNow()
	if p.responseBegun == 0 {
		p.responseBegun = now
	}
	if p.ended.Load() {
		return errScarce
	}
	wait := l.Take(now, &p.inTurn, n)
	if wait == 0 {
		return nil
	}
	defer l.Leave(&p.inTurn)
	x.countPaced(p)
	p.holds.Store(holds)
	defer p.holds.Store(0)
	limits := x.limits()
	limits.hold()
	defer limits.moveOn()
	w := x.Client.Watch
	w.begin(p)
	for wait > 0 && !w.goneNow() && !w.lapsed.Load() && !p.ended.Load() {
		pause := min(wait, maxPause)
		if !a.deadline.IsZero() {
			pause = min(pause, time.Until(a.deadline))
		}
		if pause <= 0 {
			break
		}
		if x.rest(p, pause); !w.goneNow() {
			wait = l.Take(snapshot.BandwidthNow(), &p.inTurn, n)
		}
	}
	p.responseHeld += snapshot.BandwidthNow() - now
	w.begin(a) // which is interrupted where the client has left, or a limit has run out
	if p.ended.Load() {
		return errScarce
	}
	if wait > 0 || w.goneNow() || w.lapsed.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// rest waits for so long, or until something is to end that. The sweeper looks meanwhile whether the client has left.
func (x *Exchange) rest(p *pacing, d time.Duration) {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	x.Client.Watch.waits(x.Client.Engine.Now())
	select {
	case <-p.timer.C:
	case <-p.woken:
	}
	x.Client.Watch.waited()
	p.timer.Stop()
}

// tellDelays adds fields to the trailer section of a response, if the rule wants that.
func (x *Exchange) tellDelays(part *Part) {
	names := x.rule.Bandwidth.Trailers
	p := x.paces()
	if names == nil || p.responseBegun == 0 {
		return
	}
	p.response = snapshot.BandwidthNow() - p.responseBegun
	x.body.mu.Lock()
	all := [...]time.Duration{p.request, p.response, p.requestHeld, p.responseHeld}
	x.body.mu.Unlock()
	if part.Trailer == nil {
		p.trailer.Reset()
		part.Trailer = &p.trailer
	}
	for i, d := range all {
		part.Trailer.Add(names[i], strconv.AppendInt(p.values[i][:0], d.Milliseconds(), 10))
	}
}

// takeWhole makes a body that came with its head one that is sent as its parts may pass.
func (b *requestBody) takeWhole() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for data := b.x.Whole; len(data) > 0; {
		n := min(len(data), growth)
		b.add(data[:n])
		data = data[n:]
	}
	b.complete, b.inMemory = true, true
	b.x.Whole, b.x.Streamed = nil, true
	if b.whole != nil {
		b.whole.free()
		b.whole = nil
	}
}

// trailer is the trailer section of the body.
func (b *requestBody) trailer() *message.Fields {
	if b.inMemory {
		return nil
	}
	return b.x.Client.Body.Trailer()
}

// stop has the client send no more of it.
func (b *requestBody) stop() {
	if !b.inMemory {
		b.x.Client.Body.Stop()
	}
}

// pace waits until a part of data, which next has returned, may pass, and returns the part. ok is false where nothing is to be sent any more.
func (b *requestBody) pace(l *bandwidth.Limiter, number int, data []byte, last bool) (part []byte, ends, ok bool) {
	n := min(l.Part(), len(data))
	if n == 0 {
		return data, last, true
	}
	if n < len(data) {
		data, last = data[:n], false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, p := snapshot.BandwidthNow(), b.x.paces()
	if p.requestBegun == 0 {
		p.requestBegun = now
	}
	defer func() { p.request = snapshot.BandwidthNow() - p.requestBegun }()
	wait := l.Take(now, &p.inTurnUp, n)
	if wait == 0 {
		return data, last, true
	}
	defer l.Leave(&p.inTurnUp)
	limits := b.x.limits()
	limits.hold()
	defer limits.moveOn()
	b.cursor.sending = false
	b.cond.Broadcast()
	t := time.AfterFunc(min(wait, maxPause), b.wake)
	defer t.Stop()
	defer func() { p.requestHeld += snapshot.BandwidthNow() - now }()
	if b.complete && number == b.cursor.number {
		b.x.stopPerTryTimeout()
	}
	for number == b.cursor.number && !b.stopped && b.err == nil {
		if wait = l.Take(snapshot.BandwidthNow(), &p.inTurnUp, n); wait == 0 {
			if b.cursor.sending = true; b.complete {
				b.x.startPerTryTimeout()
			}
			return data, last, true
		}
		t.Reset(min(wait, maxPause))
		b.cond.Wait()
	}
	return nil, false, false
}

// wake has all that wait for a change of the body look again.
func (b *requestBody) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
}
