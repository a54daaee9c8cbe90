package proxy

import (
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

var (
	dateName        = []byte("Date")
	contentTypeName = []byte("Content-Type")
	textPlain       = []byte("text/plain; charset=utf-8")
)

// fail answers with the status that belongs to the reason.
func (x *exchange) fail(reason observe.Reason) (keep bool) {
	return x.failWith(reason.Status(), reason)
}

// failWith answers with a short text that names the reason word.
func (x *exchange) failWith(status int, reason observe.Reason) (keep bool) {
	start := len(x.fx.Scratch)
	b := append(x.fx.Scratch, "moongate: "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, reason.String()...)
	x.fx.Scratch = append(b, '\n')
	body := x.fx.Made(start)
	x.resp.Reset()
	x.resp.Header.Add(contentTypeName, textPlain)
	return x.reply(status, reason, body)
}

// answer sends what a filter gave instead of the backend.
func (x *exchange) answer(r *filter.Reply) (keep bool) {
	reason, ok := observe.ReasonByWord(r.Reason)
	if !ok {
		reason = observe.ReasonInternal
	}
	x.resp.Reset()
	for i := range r.Header.Len() {
		x.resp.Header.Append(*r.Header.At(i))
	}
	x.fx.Response = &x.resp
	x.rule.filters.runResponse(&x.fx)
	return x.reply(r.Status, reason, r.Body)
}

// reply sends a response made here: x.resp's fields, and the body unless the method is HEAD.
// The connection persists if the whole request has been read.
func (x *exchange) reply(status int, reason observe.Reason, body []byte) (keep bool) {
	c := x.c
	x.rec.Status, x.rec.Reason = status, reason
	keep = x.reqHead.KeepAlive && !x.streamed && !c.proxy.draining.Load()
	x.resp.Status = status
	start := len(x.fx.Scratch)
	x.fx.Scratch = append(x.fx.Scratch, http.StatusText(status)...)
	x.resp.Reason = x.fx.Made(start)
	x.addDate()
	framing := http1.Length
	if string(x.req.Method) == "HEAD" {
		framing = http1.NoBody
	}
	x.out = http1.AppendResponseHead(x.out[:0], &x.resp, framing, int64(len(body)), x.hop(keep))
	if framing == http1.Length {
		x.out = append(x.out, body...)
		x.rec.BytesSent = int64(len(body))
	}
	if err := x.write(x.out); err != nil {
		x.rec.Reason = x.writeFailed(err)
		return false
	}
	x.complete = true
	return keep
}

// refuse answers a head that could not be parsed, and ends the connection.
func (c *conn) refuse(err error) {
	x := c.exchange()
	if x.start.IsZero() {
		x.begin()
	}
	x.req.Reset()
	x.reqHead = http1.RequestHead{Minor: 1}
	x.reset()
	x.streamed = true // what follows is not understood: close
	x.rec.Stats = c.sock.stats.Unrouted()
	switch e := err.(type) {
	case *http1.Error:
		x.failWith(e.Status, reasonOf(e))
		x.linger = x.complete
	default:
		if err == errHeadTimeout {
			c.nc.SetReadDeadline(never)
			x.fail(observe.ReasonClientTimeout)
			x.linger = x.complete
		} else {
			x.rec.Reason = observe.ReasonClientClosed
		}
	}
	x.finish()
}

// reasonOf is the reason for a message that the parser refused.
func reasonOf(e *http1.Error) observe.Reason {
	switch e.Status {
	case http.StatusRequestURITooLong:
		return observe.ReasonTargetTooLong
	case http.StatusExpectationFailed:
		return observe.ReasonExpectationFailed
	case http.StatusRequestHeaderFieldsTooLarge:
		return observe.ReasonHeadTooLarge
	case http.StatusNotImplemented:
		return observe.ReasonNotImplemented
	case http.StatusHTTPVersionNotSupported:
		return observe.ReasonVersionNotSupported
	case http.StatusBadGateway:
		return observe.ReasonUpstreamMalformed
	}
	return observe.ReasonBadRequest
}

// hop is what our own hop's fields say to the client.
func (x *exchange) hop(keep bool) http1.Hop {
	return http1.Hop{Close: !keep, KeepAlive: keep && x.reqHead.Minor == 0}
}

// write sends bytes to the client.
func (x *exchange) write(b []byte) error {
	c := x.c
	c.wait.set(waitWrite, c.proxy.now()+c.proxy.timeouts.WriteIdle.Milliseconds())
	var err error
	if c.nc == net.Conn(c.tcp) {
		b = c.writeRaw(b)
	}
	if len(b) > 0 {
		_, err = c.nc.Write(b)
	}
	return x.wrote(err)
}

// wrote ends the wait of a write to the client that ended with err.
func (x *exchange) wrote(err error) error {
	if !x.c.leave(&x.c.wait) && err == nil {
		return os.ErrDeadlineExceeded // and so would be the next
	}
	return err
}

// writeFailed is why the client could not be answered.
func (x *exchange) writeFailed(err error) observe.Reason {
	if !isTimeout(err) {
		return observe.ReasonClientClosed
	}
	if !x.deadline.IsZero() && !time.Now().Before(x.deadline) {
		return observe.ReasonRequestTimeout
	}
	return observe.ReasonClientTimeout
}

// addDate adds the time where a response lacks it (RFC 9110 section 6.6.1).
func (x *exchange) addDate() {
	if _, ok := x.resp.Header.Get("date"); ok {
		return
	}
	start := len(x.fx.Scratch)
	x.fx.Scratch = time.UnixMilli(x.c.proxy.now()).UTC().AppendFormat(x.fx.Scratch, http.TimeFormat)
	x.resp.Header.Add(dateName, x.fx.Made(start))
}
