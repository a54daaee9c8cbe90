package exchange

import (
	"strconv"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
)

var (
	rateLimitedName        = []byte("X-Envoy-Ratelimited")
	rateLimitLimitName     = []byte("X-Ratelimit-Limit")
	rateLimitRemainingName = []byte("X-Ratelimit-Remaining")
	rateLimitResetName     = []byte("X-Ratelimit-Reset")
)

// checkRateLimits counts the request and returns ReasonOK, or why it does not pass. path and query are those by which
// the rule was matched, before its filters. If Redis is asked, the wait also ends when the client leaves or a limit on
// the request's time expires.
func (x *Exchange) checkRateLimits(path, query []byte) observe.Reason {
	req := ratelimit.Request{Request: &x.Request.Request, Path: path, Query: query, Client: x.rec.ClientAddr.Addr()}
	d := &x.rare.limited
	if x.listener.Redis == nil || !x.rule.RateLimits.Waits() {
		x.rule.RateLimits.Check(&req, nil, d)
	} else if reason := x.askRedis(&req, d); reason != observe.ReasonOK {
		return reason
	}
	switch {
	case d.Exceeded:
		return observe.ReasonMatchLimit
	case d.Limited:
		return observe.ReasonRateLimited
	case d.FailClosed:
		return observe.ReasonRateLimitUnavailable
	}
	return observe.ReasonOK
}

// askRedis checks limits for which Redis may have to be asked. It returns ReasonOK, or why the request has ended
// meanwhile.
func (x *Exchange) askRedis(req *ratelimit.Request, d *ratelimit.Decision) observe.Reason {
	w := x.beginWait()
	req.Until, req.Done = x.deadline, w.ctx.Done()
	x.rule.RateLimits.Check(req, x.listener.Redis, d)
	if w.endNotForBackend() {
		return observe.ReasonClientClosed
	}
	if reason, expired := x.expired(); expired {
		return reason
	}
	return observe.ReasonOK
}

// addRateLimitFields adds what is left of the nearest limit to the head of a response (draft-polli-ratelimit-headers-03),
// and marks a request over a limit as Envoy does. It replaces such fields of the backend.
func (x *Exchange) addRateLimitFields() {
	d := &x.rare.limited
	if d.Limited {
		x.resp.Header.Set(rateLimitedName, trueValue)
	}
	if !d.Reported {
		return
	}
	start := len(x.fx.Scratch)
	b := strconv.AppendUint(x.fx.Scratch, uint64(d.Limit), 10)
	b = append(b, ", "...)
	b = strconv.AppendUint(b, uint64(d.Limit), 10)
	b = append(b, ";w="...)
	x.fx.Scratch = strconv.AppendUint(b, uint64(d.Window), 10)
	x.resp.Header.Set(rateLimitLimitName, x.fx.Made(start))
	x.resp.Header.Set(rateLimitRemainingName, x.decimal(d.Left))
	x.resp.Header.Set(rateLimitResetName, x.decimal(d.Reset))
}

// decimal returns a number as text that is valid until the exchange ends.
func (x *Exchange) decimal(n uint32) []byte {
	start := len(x.fx.Scratch)
	x.fx.Scratch = strconv.AppendUint(x.fx.Scratch, uint64(n), 10)
	return x.fx.Made(start)
}
