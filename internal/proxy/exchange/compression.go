package exchange

import (
	"net/http"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// slowPart is the time in milliseconds between two parts of a response above which it keeps no encoder between them, if
// its encoding permits.
const slowPart = 1000

// recorded are the encodings as values of the access log.
var recorded = [...]observe.ContentEncoding{compression.Gzip: observe.ContentEncodingGzip, compression.Brotli: observe.ContentEncodingBrotli, compression.Zstd: observe.ContentEncodingZstd}

// compressing is what an exchange needs to compress a response. It is kept for later exchanges.
type compressing struct {
	x        *Exchange
	accepted compression.Accepted // by the client of the current request
	stream   compression.Stream   // of the current response; active between its head and its end

	buf *buffer.Buffer // nil while there is nothing to send
	end int            // buf.Bytes()[buffer.Headroom:end] is to be sent

	head    Head // of the response
	started bool // the head was sent
	at      int64
}

// negotiate records which encodings the client accepts. The backend does not receive the field, so that it does not
// compress the response itself.
func (x *Exchange) negotiate() {
	s := x.ensureRare()
	if s.compressing == nil {
		s.compressing = &compressing{x: x}
	}
	s.compressing.accepted = compression.ParseAccepted(&x.Header)
	compression.RemoveAccepted(&x.Header)
}

// compressing returns what compresses the current response, nil if it is not compressed.
func (x *Exchange) compressing() *compressing {
	if x.rule == nil || x.rule.Compression == nil || !x.rare.compressing.stream.Active() {
		return nil
	}
	return x.rare.compressing
}

// beginCompression decides whether the response in x.resp, whose body begins with part, is compressed, and changes its
// head accordingly. The rule must have a policy for it.
//
//go:noinline
func (x *Exchange) beginCompression(head *Head, part *Part) *compressing {
	c, policy, h := x.rare.compressing, x.rule.Compression, &x.resp.Header
	if x.resp.Status == http.StatusNotModified {
		x.fx.Scratch = compression.NotModified(&x.Header, h, x.fx.Scratch)
		head.Length = -1 // it may differ from the length of the response to GET, see below (RFC 9110 section 8.6)
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
		if isHead { // like the response to GET, whose length is unknown without its body (RFC 9110 section 9.3.2)
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

// start sends the head, with as much of the first part of the body as one write holds.
func (c *compressing) start(part Part) error {
	x := c.x
	err := c.pass(part)
	if err == nil && !c.started { // there is no body data yet
		err = c.send(false, nil)
	}
	c.head = Head{}
	if !part.Last {
		x.resp.Header.Forget() // as in relay
		x.resp.Reason = nil
	}
	return err
}

// pass compresses a part of the body and sends the result. It holds nothing back, so that the client receives each
// piece when the backend sends it.
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

// send sends the contents of the buffer, after the head if that has not been sent.
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
	if err := x.sent(Part{}, x.startResponse(c.head, Part{})); err != nil { // the head does not wait for the limiter of the body
		return err
	}
	return x.sendPart(&x.attempt, p)
}

// giveBuffer releases the buffer, if there is one.
func (c *compressing) giveBuffer() {
	if c.buf != nil {
		buffer.Give(c.buf)
		c.buf = nil
	}
}

// compressReply returns the body of a response of the gateway as it is to be sent: compressed if that makes it shorter.
// It changes the head in x.resp accordingly.
func (x *Exchange) compressReply(status int, body []byte) []byte {
	c, policy, h := x.rare.compressing, x.rule.Compression, &x.resp.Header
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

// restCompression must be called after a part of a response that is followed by a long pause.
func (x *Exchange) restCompression() {
	if c := x.compressing(); c != nil {
		c.stream.Slow()
	}
}

// endCompression must be called after the relay of a response, however it has ended.
func (x *Exchange) endCompression() {
	if x.rare != nil && x.rare.compressing != nil {
		c := x.rare.compressing
		c.stream.End()
		c.giveBuffer()
		c.head = Head{}
	}
}
