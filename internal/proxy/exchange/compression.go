package exchange

import (
	"net/http"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// slowPart is how many milliseconds lie between parts of a response that keeps no encoder between them, if its encoding permits.
const slowPart = 1000

// recorded are encodings as they are logged.
var recorded = [...]observe.ContentEncoding{compression.Gzip: observe.ContentEncodingGzip, compression.Brotli: observe.ContentEncodingBrotli, compression.Zstd: observe.ContentEncodingZstd}

// compressing is what an exchange needs to compress a response. It is kept for later exchanges.
type compressing struct {
	x        *Exchange
	accepted compression.Accepted // by the client of the present request
	stream   compression.Stream   // of the present response; active between its head and its end

	buf *buffer.Buffer // nil while nothing is to be sent
	end int            // buf.Bytes()[buffer.Headroom:end] is

	head    Head // of the response
	started bool // the head is sent
	at      int64
}

// negotiate keeps what the client accepts. Its backend does not hear of it, so that it compresses nothing itself.
func (x *Exchange) negotiate() {
	s := x.mayNeed()
	if s.compressing == nil {
		s.compressing = &compressing{x: x}
	}
	s.compressing.accepted = compression.ParseAccepted(&x.Header)
	compression.RemoveAccepted(&x.Header)
}

// compressing returns what compresses the present response, nil where nothing does.
func (x *Exchange) compressing() *compressing {
	if x.rule == nil || x.rule.Compression == nil || !x.seldom.compressing.stream.Active() {
		return nil
	}
	return x.seldom.compressing
}

// beginCompression decides whether the response in x.resp is compressed, of whose body part is the first, and has its head say so. The rule has a policy for it.
func (x *Exchange) beginCompression(head *Head, part *Part) *compressing {
	c, policy, h := x.seldom.compressing, x.rule.Compression, &x.resp.Header
	if x.resp.Status == http.StatusNotModified {
		x.fx.Scratch = compression.NotModified(&x.Header, h, x.fx.Scratch)
		head.Length = -1 // which may not be that of the response to GET, see below (RFC 9110 section 8.6)
		return nil
	}
	length, isHead := head.Length, head.Framing == http1.NoBody
	switch {
	case part.Last && !isHead:
		length = int64(len(part.Data()))
	case head.Framing == http1.Chunked || head.Framing == http1.UntilClose:
		length = -1
	}
	if !policy.LongEnough(length) || !compression.Fit(&x.resp) {
		return nil
	}
	x.fx.Scratch = compression.AddVary(h, x.fx.Scratch)
	var unavailable compression.Set
	for {
		offer, ok := c.accepted.Choose(policy, unavailable)
		if !ok || length >= 0 && length < offer.MinLength {
			return nil
		}
		if isHead { // as the response to GET, whose length is not known without its body (RFC 9110 section 9.3.2)
			x.fx.Scratch = compression.Encode(h, offer.Encoding, x.fx.Scratch)
			head.Length = -1
			return nil
		}
		if c.stream.Begin(&x.Client.Engine.Encoders, offer.Encoding, c, x.Client.Engine.Overloaded.Load()) {
			break
		}
		unavailable = unavailable.With(offer.Encoding)
	}
	e := c.stream.Encoding()
	x.fx.Scratch = compression.Encode(h, e, x.fx.Scratch)
	x.rec.ContentEncoding = recorded[e]
	head.Framing, head.Length = http1.Chunked, -1
	c.head, c.started, c.at = *head, false, x.Client.Engine.Now()
	return c
}

// start sends the head, and as much of the first part of the body as one write has.
func (c *compressing) start(part Part) error {
	x := c.x
	err := c.pass(part)
	if err == nil && !c.started { // nothing of the body has come
		err = c.send(false, nil)
	}
	c.head = Head{}
	if !part.Last {
		x.resp.Header.Forget() // as in relay
		x.resp.Reason = nil
	}
	return err
}

// pass compresses a part of the body and sends what comes of it. Nothing of it is held back, so that a client gets what a backend sends in pieces with each of them.
func (c *compressing) pass(part Part) error {
	now := c.x.Client.Engine.Now()
	if now-c.at > slowPart || c.x.Client.Engine.Overloaded.Load() {
		c.stream.Slow()
	}
	c.at = now
	if len(part.Data()) == 0 && !part.Last {
		return nil
	}
	if err := c.stream.Write(part.Data(), part.Last); err != nil {
		return err
	}
	if part.Last {
		c.stream.End()
		if part.Trailer != nil {
			compression.WithoutDigests(part.Trailer)
		}
	}
	err := c.send(part.Last, part.Trailer)
	c.giveBuffer()
	return err
}

// Write implements io.Writer for the stream.
func (c *compressing) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if c.buf == nil {
			c.buf, c.end = buffer.Take(), buffer.Headroom
		}
		if c.end == c.buf.End() {
			if err := c.send(false, nil); err != nil {
				return n, err
			}
		}
		m := copy(c.buf.Bytes()[c.end:c.buf.End()], b[n:])
		c.end += m
		n += m
	}
	return n, nil
}

// Room implements compression.Buffered.
func (c *compressing) Room(n int) error {
	if c.buf != nil && c.buf.End()-c.end < n {
		return c.send(false, nil)
	}
	return nil
}

// send sends what is in the buffer, behind the head where that is to be sent.
func (c *compressing) send(last bool, trailer *message.Fields) error {
	x := c.x
	p := Part{Last: last, Trailer: trailer}
	if c.buf != nil {
		p.Buf, p.At, p.End = c.buf.Bytes(), buffer.Headroom, c.end
		c.end = buffer.Headroom
	}
	x.limitWrite()
	if c.started {
		return x.sendPart(&x.attempt, p)
	}
	c.started = true
	if last && (trailer == nil || trailer.Len() == 0) && x.responseLimiter() == nil {
		c.head.Framing, c.head.Length = http1.Length, int64(p.End-p.At)
	}
	if x.responseLimiter() == nil || p.At == p.End {
		return x.sent(p, x.startResponse(c.head, p))
	}
	if err := x.sent(Part{}, x.startResponse(c.head, Part{})); err != nil { // the head does not wait for the time of the body
		return err
	}
	return x.sendPart(&x.attempt, p)
}

// giveBuffer gives the buffer back, if there is one.
func (c *compressing) giveBuffer() {
	if c.buf != nil {
		buffer.Give(c.buf)
		c.buf = nil
	}
}

// compressReply is the body of a response that is made here, as its client gets it: compressed where that makes it shorter, which the head in x.resp says then.
func (x *Exchange) compressReply(status int, body []byte) []byte {
	c, policy, h := x.seldom.compressing, x.rule.Compression, &x.resp.Header
	x.resp.Status = status
	if !policy.LongEnough(int64(len(body))) || !compression.Fit(&x.resp) {
		return body
	}
	x.fx.Scratch = compression.AddVary(h, x.fx.Scratch)
	offer, ok := c.accepted.Choose(policy, 0)
	if !ok || int64(len(body)) < offer.MinLength {
		return body
	}
	encoded := x.Client.Engine.Encoders.Append(nil, offer.Encoding, body)
	if len(encoded) >= len(body) {
		return body
	}
	x.fx.Scratch = compression.Encode(h, offer.Encoding, x.fx.Scratch)
	x.rec.ContentEncoding = recorded[offer.Encoding]
	return encoded
}

// restCompression follows a part of a response after which nothing has come for long.
func (x *Exchange) restCompression() {
	if c := x.compressing(); c != nil {
		c.stream.Slow()
	}
}

// endCompression follows the relay of a response, however it has ended.
func (x *Exchange) endCompression() {
	if x.seldom != nil && x.seldom.compressing != nil {
		c := x.seldom.compressing
		c.stream.End()
		c.giveBuffer()
		c.head = Head{}
	}
}
