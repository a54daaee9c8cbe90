package exchange

import (
	"cmp"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const (
	// uploadGrace is how long an upload may go on after its response is complete.
	uploadGrace = time.Second
	// replayable is how many bytes of a streamed request body are kept where the rule says nothing of it, so that the request can be sent again when
	// a backend has not processed it (RFC 9113 section 8.7).
	replayable = 64 << 10
)

// requestBody is the body of an exchange's request. Where it did not come whole with its head, it is read once from the
// client, by whichever goroutine needs more of it, and each attempt sends it from its first byte on, through a cursor. What was
// read is kept until no attempt can need it: bytes that are forgotten end the way for further attempts, so
// that no backend is sent a body without its beginning. All of its state is bodyState, which is new for each
// exchange.
type requestBody struct {
	x    *Exchange
	mu   sync.Mutex
	cond sync.Cond // of mu: something of bodyState has changed
	bodyState
}

// bodyState is guarded by mu, but for in, continued and whole.
type bodyState struct {
	first, last *piece // what is at hand of the body, up to end
	from, end   int64  // where in the body that begins, and how much was read
	err         error  // what was wrong with the client: a timeout, an *http1.Error or the end of the stream
	complete    bool   // the body has been read to its end
	inMemory    bool   // it came with its head, and nothing of it is the client's any more
	reading     bool   // a goroutine waits for the client
	stopped     bool   // nobody wants more
	settled     bool   // no other attempt will come
	pinned      bool   // another attempt will come: nothing is forgotten before it
	filling     bool   // all of it is waited for before any attempt is made
	heldBack    bool   // that has ended because memory is scarce
	senders     int32  // goroutines that have not ended
	// continued tells that a 100 was relayed; main goroutine only.
	continued bool

	cursor cursor

	in    buffer.Lender // what is read to; the reading goroutine's
	whole *piece        // what Request.Whole stands in, where Exchange.Hold has made it; main goroutine only
	kept  *keptBody     // nil as long as it needed no more than any body
}

// cursor is how far the present attempt has come with the body.
type cursor struct {
	number  int   // counts the attempts; a sender of an earlier one sends nothing more
	at      int64 // what was sent
	sending bool  // the sender is writing to the attempt's connection
	done    bool  // the last byte was sent
	// piece is one that begins at or before at, or nil where that is the first, so that nobody looks through those before it.
	piece *piece
}

// Hold returns memory for a body of n bytes, buffer.Size at most, that is there as a whole. It is the exchange's.
func (x *Exchange) Hold(n int) []byte {
	p := takePiece(n)
	if p.large != nil {
		p.bytes = p.large.Bytes()
	}
	x.body.whole = p
	return p.bytes[:n]
}

// begin takes what is there of a streamed body, without waiting. It fails where the client does. It follows the filters, which may have read all of the body before they
// decided on fields of the trailer section.
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

// joined returns a body of which all is at hand and nothing was sent, for as long as that is so.
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

// each calls f with all that is at hand of a body of which nothing was sent.
func (b *requestBody) each(f func([]byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := b.first; p != nil; p = p.next {
		f(p.bytes)
	}
}

// unread reports whether a response of the gateway's own leaves something of the request unread, or may do so: a filter may have read all of it, and once an
// attempt was made its sender may be stopped.
func (b *requestBody) unread() bool {
	if !b.x.Streamed {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.complete || b.err != nil || b.cursor.number > 0 && !b.inMemory
}

// read reads the next part from the client. mu is held, but not meanwhile.
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
	case !b.stopped: // else it is our own doing
		b.err = err
	}
	b.in.Give()
}

// errBodyTooLarge is that a body whose length was not known beforehand has more bytes than the listener allows.
var errBodyTooLarge = errors.New("the request body is longer than the listener allows")

// exceedsBody reports whether a request body of so many bytes is longer than the listener allows.
func (x *Exchange) exceedsBody(bytes int64) bool {
	if x.listener == nil {
		return false // before that is known
	}
	most := x.listener.Config.MaxRequestBodyBytes
	return most > 0 && bytes > most
}

// dropTrailers takes fields that only a header section may bring out of the trailer section, before anyone sends it: servers may merge the two. They are ids, and
// what filters have decided on.
func (b *requestBody) dropTrailers() {
	t := b.trailer()
	if t == nil || t.Len() == 0 {
		return
	}
	t.RemoveIf(func(f *message.Field) bool { return message.ClaimsRequestID(f) || b.x.fx.Decided(f.Name) })
}

// unlocked calls f without mu, which is held again when it returns, also by a panic.
func (b *requestBody) unlocked(f func()) {
	b.mu.Unlock()
	defer b.mu.Lock()
	f()
}

// growth bounds the size of pieces that are larger than what is put in them.
const growth = 16 << 10

// add takes in what was read; mu is held. What does not fill most of the buffer that it stands in is copied, to what is free of the last
// piece first, so that the memory held is about as much as the bytes.
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
			// It grows with the body, so that many small parts need few pieces.
			p = takePiece(max(len(data), min(int(b.end-b.from), growth)))
			b.append(p)
		}
		n := min(len(data), cap(p.bytes)-len(p.bytes))
		p.bytes = append(p.bytes, data[:n]...)
		b.end += int64(n)
		data = data[n:]
	}
}

// append adds a piece behind what was read; mu is held.
func (b *requestBody) append(p *piece) {
	p.at = b.end
	if b.last == nil {
		b.first = p
	} else {
		b.last.next = p
	}
	b.last = p
}

// forget gives up what the present attempt has sent where no other can follow, or where it is too much to be kept; mu
// is held.
func (b *requestBody) forget() {
	if !b.settled && (b.pinned || b.inMemory || b.end <= b.x.replayable()) {
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

// replayable is how many bytes of a streamed body are kept, so that the request can be sent again.
func (x *Exchange) replayable() int64 {
	if x.rule == nil {
		return replayable
	}
	limit := x.rule.BufferLimit
	if x.rule.RequestBuffer > replayable { // it was kept anyway
		limit = max(limit, x.rule.RequestBuffer)
	}
	switch e := x.Client.Engine; {
	case limit == 0, limit > replayable && e.keptScarce():
		return replayable
	case limit > replayable:
		return min(limit, e.mostKept())
	}
	return limit
}

// atHand reports whether the request could be sent from its first byte on.
func (b *requestBody) atHand() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from == 0 && b.err == nil
}

// pin is atHand, and keeps it so until the next attempt begins, or there is to be none.
func (b *requestBody) pin() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pinned = b.from == 0 && b.err == nil
	return b.pinned
}

// allAtHand reports whether that needs no more of the client.
func (b *requestBody) allAtHand() bool {
	if !b.x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.from == 0 && b.err == nil && b.complete
}

// keepsBackendWaiting reports whether the backend may have to wait for what is to be sent: the client has not sent it yet, or bandwidth holds it up.
func (b *requestBody) keepsBackendWaiting() bool {
	return b.x.requestLimiter() != nil || !b.allAtHand()
}

// allRead reports whether nothing more of the body is to come from the client.
func (b *requestBody) allRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complete && b.err == nil
}

// wholeSent reports whether the present attempt has sent all of the body.
func (b *requestBody) wholeSent(a *attempt) bool {
	if a.whole {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursor.done
}

// starved reports whether the present attempt has sent all that the client has sent of a body that is not complete.
func (b *requestBody) starved(a *attempt) bool {
	if a.whole {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.complete && !b.cursor.done && b.cursor.at == b.end
}

// failed is what was wrong with the client, nil where nothing was.
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

var errForgotten = errors.New("the beginning of the request body is not at hand any more")

// rewind puts the cursor of a new attempt before the first byte. The attempt before must have been detached.
func (b *requestBody) rewind() (number int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return 0, b.err
	case b.from != 0 || b.settled:
		return 0, errForgotten
	}
	b.cursor, b.pinned = cursor{number: b.cursor.number + 1}, false
	return b.cursor.number, nil
}

// upcoming is what is at hand at the cursor, as far as it stands in one piece, and whether it is the last of the body; mu is held.
func (b *requestBody) upcoming() (data []byte, last bool) {
	at, p := b.cursor.at, cmp.Or(b.cursor.piece, b.first)
	for p != nil && at >= p.end() && p.next != nil { // the last one may grow
		p = p.next
	}
	if b.cursor.piece = p; p != nil && at < p.end() {
		data = p.bytes[at-p.at:]
	}
	return data, b.complete && at+int64(len(data)) == b.end
}

// opening is what a stream is opened with: what is at hand of the body, as far as it stands in one piece. last reports whether it is
// all of the request.
func (b *requestBody) opening() (data []byte, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if data, last = b.upcoming(); len(data) > 0 && b.x.requestLimiter() != nil {
		return nil, false // each part has its time
	}
	if last {
		t := b.trailer()
		last = t == nil || t.Len() == 0
	}
	return data, last
}

// next returns what the attempt sends next: with wait at least one byte unless last is set. ok is false where there is nothing to
// be sent any more. Until sent is called the bytes stay where they are.
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
			b.cursor.sending = true
			return data, last, true
		case b.reading:
			b.cond.Wait()
		default:
			if b.read(true); b.err != nil {
				b.unlocked(b.x.Client.Watch.Fail) // who waits for the backend finds the cause in err
			}
		}
	}
}

// sent notes how many bytes of next's were sent, and reports whether there is more to do.
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

// start has the body sent on the attempt by a goroutine of its own, so that a response which starts meanwhile is relayed (full
// duplex). opened bytes of it were given to the transport when it was opened.
func (b *requestBody) start(a *attempt, number, opened int) {
	b.mu.Lock()
	b.senders++
	b.cursor.sending = a.headSent || b.x.requestLimiter() != nil // then the head is sent at once
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
	if l != nil { // the head does not wait for the time of the body
		headSent = true
	}
	if headSent && !b.sent(number, opened, false, to.write(nil, false, nil)) { // once flow control has let that through
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

// detach ends what is under way on the attempt, on which nothing is sent after that.
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

// settle says that there will be no other attempt: the response has begun. Nothing of the body is kept from now on but what has not
// been sent.
func (b *requestBody) settle(a *attempt) {
	if b.whole == nil && !b.x.Streamed {
		return
	}
	a.unsent = a.whole && !a.transport.releaseBody()
	if a.unsent {
		return // and asked again, as nobody tells
	}
	if b.whole != nil {
		b.drop()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	if a.whole { // there is no sender
		b.cursor.at = b.end
	}
	b.forget()
}

// drop gives up a body that is there as a whole.
func (b *requestBody) drop() {
	b.x.Whole = nil
	b.whole.free()
	b.whole = nil
}

// finish waits for the senders and reports whether all of the body was sent. Where the response is complete they get a moment to end
// by themselves; else they are interrupted.
func (b *requestBody) finish(a *attempt, responseComplete bool) (clean bool) {
	x := b.x
	if !x.Streamed {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
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

// waitFor waits for the senders, so long at most; mu is held, but not meanwhile.
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

// release gives all memory back. No attempt is under way.
func (b *requestBody) release() {
	if b.whole != nil {
		b.drop()
	}
	if b.kept == nil && b.first == nil {
		return
	}
	b.mu.Lock() // whoever has it forget what it keeps may be at work
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

// neverComes reports whether the client was promised a 100 that did not come: it will not send its body.
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
