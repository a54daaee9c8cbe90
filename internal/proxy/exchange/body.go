package exchange

import (
	"cmp"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const (
	// uploadGrace is how long an upload may continue after its response is complete.
	uploadGrace = time.Second
	// replayable is how many bytes of a streamed request body are kept if the rule does not configure it, so that the
	// request can be sent again if a backend has not processed it (RFC 9113 section 8.7).
	replayable = 64 << 10
)

// requestBody is the body of an exchange's request. If it did not arrive completely with its head, it is read from the
// client once, by whichever goroutine needs more of it. Each attempt sends it from its first byte on, through a cursor.
// What was read is kept until no attempt can need it. After bytes were discarded no further attempt is possible, so
// that no backend is sent a body without its beginning. bodyState holds all of its state, and is reset for each
// exchange.
type requestBody struct {
	x    *Exchange
	mu   sync.Mutex
	cond sync.Cond // of mu: a part of bodyState has changed
	bodyState
}

// bodyState is guarded by mu, except for in, continued and whole.
type bodyState struct {
	first, last *piece // the part of the body that is available, up to end
	from, end   int64  // the offset in the body at which that part begins, and the number of bytes read
	err         error  // what went wrong with the client: a timeout, an *http1.Error or the end of the stream
	complete    bool   // the body was read to its end
	inMemory    bool   // it arrived with its head, and is not read from the client any more
	reading     bool   // a goroutine waits for the client
	stopped     bool   // no more of the body is needed
	final       bool   // no other attempt follows
	pinned      bool   // another attempt follows, so nothing is discarded before it
	filling     bool   // all of it is awaited before any attempt is made
	heldBack    bool   // filling was ended because memory is scarce
	senders     int32  // goroutines that have not ended
	// continued means that a 100 was relayed. It belongs to the main goroutine.
	continued bool

	cursor cursor

	in    buffer.Lender // memory to read into; belongs to the reading goroutine
	whole *piece        // the memory of Request.Whole, if Exchange.Hold has made it; belongs to the main goroutine
	kept  *keptBody     // nil until the body needs more than any body may keep
}

// cursor is the position of the current attempt in the body.
type cursor struct {
	number  int   // number of the attempt; a sender of an earlier one sends no more
	at      int64 // bytes sent
	sending bool  // the sender is writing to the attempt's connection
	ending  bool  // the sender has begun to write the last byte that the backend is sent
	done    bool  // the last byte was sent
	// piece is a piece that begins at or before at, to avoid a search through the earlier ones; nil means the first.
	piece *piece
}

// Hold returns memory for a body of n bytes, at most buffer.Size, that has arrived completely. It belongs to the
// exchange.
func (x *Exchange) Hold(n int) []byte {
	p := takePiece(n)
	if p.large != nil {
		p.bytes = p.large.Bytes()
	}
	x.body.whole = p
	return p.bytes[:n]
}

// begin takes what has arrived of a streamed body, without waiting. It returns the client's error. It must be called
// after the filters, which may have read all of the body before they decided on fields of the trailer section.
func (b *requestBody) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.complete {
		b.dropTrailers()
		return b.err
	}
	b.read(false)
	return b.err
}

// joined returns a body of which all is available and nothing was sent. The bytes are valid as long as that is so.
func (b *requestBody) joined() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.first; p != nil && p == b.last {
		return p.bytes
	}
	all := make([]byte, 0, b.end)
	for p := b.first; p != nil; p = p.next {
		all = append(all, p.bytes...)
	}
	return all
}

// each calls f with all available parts of a body of which nothing was sent.
func (b *requestBody) each(f func([]byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := b.first; p != nil; p = p.next {
		f(p.bytes)
	}
}

// unread reports whether a response of the gateway leaves a part of the request unread, or may do so. A filter may have
// read all of it, and once an attempt was made its sender may be stopped.
func (b *requestBody) unread() bool {
	if !b.x.Streamed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.complete || b.err != nil || b.cursor.number > 0 && !b.inMemory
}

// read reads the next part from the client. mu must be held; it is released while reading.
func (b *requestBody) read(wait bool) {
	b.reading = true
	var data []byte
	var last bool
	var err error
	had := b.end
	b.unlocked(func() {
		data, last, err = b.x.Client.Body.Next(&b.in, wait)
		if err == nil && b.x.exceedsBody(had+int64(len(data))) {
			err = errBodyTooLarge
		}
		if err == nil && len(data) > 0 {
			b.x.movedNow()
			b.x.feedMirrors(data)
		}
	})
	b.reading = false
	b.cond.Broadcast()
	switch {
	case err == nil:
		if b.complete = last; last {
			b.dropTrailers()
		}
		b.add(data)
	case !b.stopped: // otherwise the gateway itself has stopped it
		b.err = err
	}
	b.in.Give()
}

// errBodyTooLarge means that a body of unknown length has more bytes than the listener allows.
var errBodyTooLarge = errors.New("the request body is longer than the listener allows")

// exceedsBody reports whether a request body of that many bytes is longer than the listener allows.
func (x *Exchange) exceedsBody(bytes int64) bool {
	if x.listener == nil {
		return false // the listener is not known yet
	}
	most := x.listener.Config.MaxRequestBodyBytes
	return most > 0 && bytes > most
}

// dropTrailers removes fields from the trailer section that are only allowed in the header section, before anything
// sends it: servers may merge the two. These are request ids, and fields that filters have decided on.
func (b *requestBody) dropTrailers() {
	t := b.trailer()
	if t == nil || t.Len() == 0 {
		return
	}
	t.RemoveIf(func(f *message.Field) bool { return message.ClaimsRequestID(f) || b.x.fx.Decided(f.Name) })
}

// unlocked calls f without mu, which is held again when unlocked returns or panics.
func (b *requestBody) unlocked(f func()) {
	b.mu.Unlock()
	defer b.mu.Lock()
	f()
}

// growth is the largest size of pieces that are larger than their contents.
const growth = 16 << 10

// add stores what was read. mu must be held. Data that does not fill most of its buffer is copied, first to the free
// part of the last piece, so that the memory held is about as large as the data.
func (b *requestBody) add(data []byte) {
	defer b.count()
	if len(data) > classes[largest-1] {
		large := b.in.Release()
		from := int(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(large.Bytes()))))
		b.append(largePiece(large, from, from+len(data)))
		b.end += int64(len(data))
		return
	}
	for len(data) > 0 {
		p := b.last
		if p == nil || len(p.bytes) == cap(p.bytes) || p.large != nil {
			// Pieces grow with the body, so that many small parts need few pieces.
			p = takePiece(max(len(data), min(int(b.end-b.from), growth)))
			b.append(p)
		}
		n := min(len(data), cap(p.bytes)-len(p.bytes))
		p.bytes = append(p.bytes, data[:n]...)
		b.end += int64(n)
		data = data[n:]
	}
}

// append adds a piece at the end. mu must be held.
func (b *requestBody) append(p *piece) {
	p.at = b.end
	if b.last == nil {
		b.first = p
	} else {
		b.last.next = p
	}
	b.last = p
}

// forget discards what the current attempt has sent, if no other attempt can follow or if it is too much to keep. mu
// must be held.
func (b *requestBody) forget() {
	if !b.final && (b.pinned || b.inMemory || b.end <= b.x.replayable()) {
		return
	}
	for b.first != nil && b.first.end() <= b.cursor.at {
		p := b.first
		if b.first = p.next; b.first == nil {
			b.last = nil
		}
		b.from = p.end()
		if b.cursor.piece == p {
			b.cursor.piece = nil
		}
		p.free()
	}
	b.count()
}

// replayable returns how many bytes of a streamed body are kept so that the request can be sent again.
func (x *Exchange) replayable() int64 {
	if x.rule == nil {
		return replayable
	}
	limit := max(cmp.Or(x.rule.BufferLimit, replayable), x.rule.RequestBuffer) // what was buffered is in memory anyway
	switch e := x.Client.Engine; {
	case limit > replayable && e.keptScarce():
		return replayable
	case limit > replayable:
		return min(limit, e.mostKept())
	}
	return limit
}

// atHand reports whether the request could be sent again from its first byte.
func (b *requestBody) atHand() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from == 0 && b.err == nil
}

// pin is like atHand, and keeps the body until the next attempt begins, or until there is to be none.
func (b *requestBody) pin() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pinned = b.from == 0 && b.err == nil
	return b.pinned
}

// allAtHand reports whether the whole request could be sent without reading more from the client.
func (b *requestBody) allAtHand() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from == 0 && b.err == nil && b.complete
}

// keepsBackendWaiting reports whether the backend may have to wait for the body, because the client has not sent it yet
// or a bandwidth limit holds it up.
func (b *requestBody) keepsBackendWaiting() bool {
	return b.x.requestLimiter() != nil || !b.allAtHand()
}

// allRead reports whether no more of the body is to come from the client.
func (b *requestBody) allRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complete && b.err == nil
}

// wholeSent reports whether the current attempt has sent all of the body.
func (b *requestBody) wholeSent(a *attempt) bool {
	if a.whole {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursor.done
}

// starved reports whether the current attempt has sent everything that arrived of a body that is not complete.
func (b *requestBody) starved(a *attempt) bool {
	if a.whole {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.complete && !b.cursor.done && b.cursor.at == b.end
}

// failed returns what went wrong with the client, nil if nothing did.
func (b *requestBody) failed() error {
	if !b.x.Streamed {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// errPanicked ends an exchange whose body was being sent by a goroutine that panicked.
var errPanicked = errors.New("a panic ended the upload")

var errForgotten = errors.New("the beginning of the request body is no longer available")

// rewind moves the cursor to the first byte for a new attempt. The previous attempt must have been detached.
func (b *requestBody) rewind() (number int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return 0, b.err
	case b.from != 0 || b.final:
		return 0, errForgotten
	}
	b.cursor, b.pinned = cursor{number: b.cursor.number + 1}, false
	return b.cursor.number, nil
}

// upcoming returns the bytes at the cursor that are available in one piece, and whether they are the last of the body.
// mu must be held.
func (b *requestBody) upcoming() (data []byte, last bool) {
	at, p := b.cursor.at, cmp.Or(b.cursor.piece, b.first)
	for p != nil && at >= p.end() && p.next != nil { // the last piece may grow
		p = p.next
	}
	if b.cursor.piece = p; p != nil && at < p.end() {
		data = p.bytes[at-p.at:]
	}
	return data, b.complete && at+int64(len(data)) == b.end
}

// opening returns the part of the body with which a stream is opened: the bytes available in one piece. last reports
// whether they are all of the request.
func (b *requestBody) opening() (data []byte, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if data, last = b.upcoming(); len(data) > 0 && b.x.requestLimiter() != nil {
		return nil, false // the limiter decides when each part is sent
	}
	if last {
		t := b.trailer()
		last = t == nil || t.Len() == 0
	}
	return data, last
}

// next returns what the attempt sends next: with wait, at least one byte unless last is set. ok is false if nothing is
// to be sent any more. The bytes stay valid until sent is called.
func (b *requestBody) next(number int, wait bool) (data []byte, last, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if number != b.cursor.number || b.cursor.done || b.stopped || b.err != nil {
			return nil, false, false
		}
		data, last = b.upcoming()
		switch {
		case len(data) > 0 || last || !wait:
			b.cursor.sending, b.cursor.ending = true, b.completes(data, last)
			return data, last, true
		case b.reading:
			b.cond.Wait()
		default:
			if b.read(true); b.err != nil {
				b.unlocked(b.x.Client.Watch.Fail) // forward finds the cause in err
			}
		}
	}
}

// completes reports whether the backend has all of the body once data is sent at the cursor. With Content-Length that
// may be before the client's stream ends. mu must be held.
func (b *requestBody) completes(data []byte, last bool) bool {
	return last || b.x.Framing == http1.Length && b.cursor.at+int64(len(data)) == b.x.Length
}

// sent records how many bytes returned by next were sent, and reports whether there is more to do.
func (b *requestBody) sent(number, n int, last bool, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.cursor
	c.sending = false
	b.cond.Broadcast()
	if err != nil || number != c.number {
		return false
	}
	if n > 0 {
		b.x.movedNow()
	}
	c.at += int64(n)
	if c.done = last; last || b.complete {
		b.x.startPerTryTimeout()
	}
	b.forget()
	return !last
}

// start sends the body on the attempt on a new goroutine, so that a response which begins meanwhile is relayed (full
// duplex). The first opened bytes were passed to the transport when it was opened.
func (b *requestBody) start(a *attempt, number, opened int) {
	b.mu.Lock()
	b.senders++
	b.cursor.sending = a.headSent || b.x.requestLimiter() != nil // the head is sent at once then
	b.mu.Unlock()
	go b.send(a.transport, a.headSent, number, opened)
}

func (b *requestBody) send(to requestWriter, headSent bool, number, opened int) {
	defer func() {
		v := recover()
		if v != nil {
			b.x.Client.Engine.Observer.Panicked("upload", v)
			b.x.Client.Watch.Fail()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if v != nil {
			b.err, b.reading, b.cursor.sending = errPanicked, false, false
		}
		b.senders--
		b.cond.Broadcast()
	}()
	l := b.x.requestLimiter()
	if l != nil { // the head does not wait for the limiter of the body
		headSent = true
	}
	if headSent && !b.sent(number, opened, false, to.write(nil, false, nil)) { // it returns once flow control has let them through
		return
	}
	for wait := headSent; ; wait = true { // a head that was not sent does not wait for the body
		data, last, ok := b.next(number, wait)
		if !ok {
			return
		}
		if l != nil {
			if data, last, ok = b.pace(l, number, data, last); !ok {
				return
			}
		}
		var trailer *message.Fields
		if last {
			trailer = b.trailer()
		}
		if !b.sent(number, len(data), last, to.write(data, last, trailer)) {
			return
		}
	}
}

// detach ends what is in progress on the attempt. Nothing is sent on it afterwards.
func (b *requestBody) detach(a *attempt) {
	if !b.x.Streamed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cursor.number++
	b.cond.Broadcast()
	if !b.cursor.sending {
		return
	}
	b.unlocked(a.abort)
	for b.cursor.sending {
		b.cond.Wait()
	}
}

// markFinal records that the response has begun, so that no other attempt follows. From now on only the part of the body
// that has not been sent is kept.
func (b *requestBody) markFinal(a *attempt) {
	if b.whole == nil && !b.x.Streamed {
		return
	}
	a.unsent = a.whole && !a.transport.releaseBody()
	if a.unsent {
		return // markFinal is called again, since nothing reports when the transport is done
	}
	if b.whole != nil {
		b.drop()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final = true
	if t, is := a.transport.(*http1Transport); is {
		t.answeredEarly = !a.whole && !b.cursor.ending
	}
	if a.whole { // there is no sender
		b.cursor.at = b.end
	}
	b.forget()
}

// drop releases a body that arrived completely.
func (b *requestBody) drop() {
	b.x.Whole = nil
	b.whole.free()
	b.whole = nil
}

// finish waits for the senders and reports whether all of the body was sent. If the response is complete, they have
// uploadGrace to end by themselves; otherwise they are interrupted at once.
func (b *requestBody) finish(a *attempt, responseComplete bool) (clean bool) {
	x := b.x
	if !x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final = true
	if responseComplete && !b.awaited() {
		b.waitFor(uploadGrace)
	}
	if b.senders > 0 {
		b.cursor.number++
		b.stopped = true
		b.cond.Broadcast()
		b.unlocked(func() {
			a.abort()
			b.stop()
		})
		for b.senders > 0 {
			b.cond.Wait()
		}
	}
	x.rec.BytesReceived = b.end
	x.endMirrors(b.complete && b.err == nil)
	return b.cursor.done || a.whole
}

// waitFor waits for the senders, at most for d. mu must be held; it is released while waiting.
func (b *requestBody) waitFor(d time.Duration) {
	if b.senders == 0 {
		return
	}
	late := false
	t := time.AfterFunc(d, func() {
		b.mu.Lock()
		late = true
		b.cond.Broadcast()
		b.mu.Unlock()
	})
	for b.senders > 0 && !late {
		b.cond.Wait()
	}
	t.Stop()
}

// release releases all memory. No attempt may be in progress.
func (b *requestBody) release() {
	if b.whole != nil {
		b.drop()
	}
	if b.kept == nil && b.first == nil {
		return
	}
	b.mu.Lock() // Engine.ForgetBodies may be running
	for p := b.first; p != nil; {
		next := p.next
		p.free()
		p = next
	}
	b.first, b.last, b.cursor.piece, b.from = nil, nil, nil, b.end
	b.count()
	b.mu.Unlock()
	b.endKept()
}

// neverComes reports whether the client awaits a 100 that was not sent, so that it will not send its body.
func (b *requestBody) neverComes() bool {
	if !b.x.Streamed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.awaited()
}

func (b *requestBody) awaited() bool {
	return b.x.ExpectContinue && !b.continued && b.end == 0
}
