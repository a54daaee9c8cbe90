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

// maxPause is the longest single wait, so that the sweeper checks each wait separately.
const maxPause = 5 * time.Second

// pacing is what an exchange needs to limit the bandwidth of its bodies. It is kept for later exchanges.
type pacing struct {
	timer *time.Timer // stopped while there is no wait
	// woken receives a value when the wait for a part should end early.
	woken chan struct{}
	// inTurn and inTurnUp are the places of the response and the request in the queues of their limiters.
	inTurn, inTurnUp bandwidth.Waiter

	counted bool // in Engine.paced
	// holds is how many bytes the response holds while a part of it waits in a buffer; 0 while it waits for the backend
	// or the client.
	holds atomic.Uint64
	ended atomic.Bool // the response must end, because memory is scarce

	trailer message.Fields // created here if the backend's response has none
	values  [len(snapshot.DelayTrailers)][20]byte
	delays
}

// delays are how long the bodies of the current exchange took, and for how much of that they were held up.
type delays struct {
	responseBegun          time.Duration // by BandwidthNow; 0 before the first part
	response, responseHeld time.Duration
	requestBegun           time.Duration
	request, requestHeld   time.Duration // guarded by mu of the body
}

// errScarce ends a response that is held up while memory is scarce.
var errScarce = errors.New("a response held up by a bandwidth limit was ended because memory is scarce")

// pacedResponses are the responses that have been held up and have not ended. Each of them may have a buffer with data
// that waits.
type pacedResponses struct {
	mu    sync.Mutex
	since map[*pacing]time.Duration // when each was first held up, by BandwidthNow
}

// pacedFor is how long a response must have been held up before EndPaced may end it.
const pacedFor = 5 * time.Second

// EndPaced ends responses that are held up, the longest held up first, until the ended ones have held that many bytes
// together. It returns their number and the bytes they held. Responses that wait for their backend hold no buffer, so
// ending them would free nothing. For those that wait for their client see client.Set.EndStuckResponses.
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

// countPaced records that the response is held up, until endPacing.
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

// endPacing must be called before the end of the exchange.
func (x *Exchange) endPacing() {
	if x.rare == nil || x.rare.pacing == nil || !x.rare.pacing.counted {
		return
	}
	p, r := x.rare.pacing, &x.Client.Engine.paced
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

// paces returns the exchange's pacing, which it creates if necessary.
func (x *Exchange) paces() *pacing {
	s := x.ensureRare()
	if s.pacing == nil {
		p := &pacing{woken: make(chan struct{}, 1)}
		p.inTurn.Wake = p.interrupt
		p.inTurnUp.Wake = func() { go x.body.wake() } // the caller may hold the lock of another body
		s.pacing = p
	}
	return s.pacing
}

// beginPacing must be called before any attempt of a request whose rule limits bandwidth.
func (x *Exchange) beginPacing(b *snapshot.BandwidthLimit) {
	x.paces().delays = delays{}
	if b.Request != nil && len(x.Whole) > 0 {
		x.body.takeWhole()
	}
}

// responseLimiter returns the limiter of the response, nil if there is none.
func (x *Exchange) responseLimiter() *bandwidth.Limiter {
	if x.rule == nil || x.rule.Bandwidth == nil {
		return nil
	}
	return x.rule.Bandwidth.Response
}

// requestLimiter returns the limiter of the request, nil if there is none.
func (x *Exchange) requestLimiter() *bandwidth.Limiter {
	if x.rule == nil || x.rule.Bandwidth == nil {
		return nil
	}
	return x.rule.Bandwidth.Request
}

// sendPart sends a part of the body of a response, after its head. If a limiter holds it up, it is sent in smaller
// parts, each when the limiter allows it.
//
//go:noinline
func (x *Exchange) sendPart(a *attempt, part Part) error {
	l := x.responseLimiter()
	if l == nil || part.At == part.End {
		if l != nil && part.Last {
			x.addDelayTrailers(&part)
		}
		return x.sent(part, x.Client.Response.More(part))
	}
	for at, end := part.At, part.End; ; {
		n := min(l.Part(), end-at)
		if err := x.pace(a, l, n, Holds(part.IsLittle())); err != nil {
			return err
		}
		p := Part{Buf: part.Buf[:at+n], At: at, End: at + n} // without room after it, where the next part is
		if at += n; at == end {
			if p.Last, p.Trailer = part.Last, part.Trailer; p.Last {
				x.addDelayTrailers(&p)
			}
		}
		x.limitWrite()
		if err := x.sent(p, x.Client.Response.More(p)); err != nil || at == end {
			return err
		}
		x.movedNow()
	}
}

// pace waits until n bytes of the response may be sent. They are in a buffer of holds bytes. It fails with the error
// that reading from the attempt would fail with, or with errScarce.
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
	w.begin(a) // a is interrupted if the client has left or a limit has expired
	if p.ended.Load() {
		return errScarce
	}
	if wait > 0 || w.goneNow() || w.lapsed.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// rest waits for d, or until it is woken. Meanwhile the sweeper checks whether the client has left.
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

// addDelayTrailers adds the delays to the trailer section of a response, if the rule requires it.
func (x *Exchange) addDelayTrailers(part *Part) {
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

// takeWhole makes a body that arrived with its head one that is sent in parts as the limiter allows.
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

// trailer returns the trailer section of the body.
func (b *requestBody) trailer() *message.Fields {
	if b.inMemory {
		return nil
	}
	return b.x.Client.Body.Trailer()
}

// stop makes the client send no more of the body.
func (b *requestBody) stop() {
	if !b.inMemory {
		b.x.Client.Body.Stop()
	}
}

// pace waits until a part of data, which next has returned, may be sent, and returns the part. ok is false if nothing
// is to be sent any more.
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
	b.cursor.ending = false // while it waits
	defer func() {
		if number == b.cursor.number {
			b.cursor.ending = ok && b.completes(part, ends)
		}
	}()
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

// wake makes all goroutines that wait for a change of the body check again.
func (b *requestBody) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
}
