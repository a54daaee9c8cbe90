package snapshot

import (
	"fmt"
	"math"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/bandwidth"
)

// BandwidthLimit limits the bandwidth of the bodies of a rule.
type BandwidthLimit struct {
	Request, Response *bandwidth.Limiter // nil means no limit
	// Trailers are the names of the trailer fields that report the delays, in the order of DelayTrailers; nil if they
	// are not reported.
	Trailers [][]byte

	requestRate, responseRate int64 // in bytes per second; passed to the limiters by enforce
}

// DelayTrailers are the names of those fields without a prefix: how long the transfer of the request and of its
// response took, and how long the limit held each up, in ms.
var DelayTrailers = [...]string{"bandwidth-request-delay-ms", "bandwidth-response-delay-ms", "bandwidth-request-filter-delay-ms", "bandwidth-response-filter-delay-ms"}

// bandwidthBegan is the origin of the limiters' clock.
var bandwidthBegan = time.Now()

// BandwidthNow returns the time of the limiters' clock.
func BandwidthNow() time.Duration { return time.Since(bandwidthBegan) }

// enforce passes the rates of the rule to its limiters, once its whole route is accepted. It also changes the rate of
// transfers in progress. It does nothing if b is nil.
func (b *BandwidthLimit) enforce() {
	if b == nil {
		return
	}
	now := BandwidthNow()
	if b.Request != nil {
		b.Request.SetRate(b.requestRate, now)
	}
	if b.Response != nil {
		b.Response.SetRate(b.responseRate, now)
	}
}

// bandwidth compiles the limits of a rule. An edit of the rule does not reset its limiters. Those shared with the
// previous version keep its rates until enforce.
func (p *Compiler) bandwidth(route string, c *config.Rule) (b *BandwidthLimit, release []func()) {
	limit := c.GetTraffic().GetBandwidthLimit()
	if limit == nil {
		return nil, nil
	}
	b = &BandwidthLimit{}
	for _, of := range []struct {
		limiter   **bandwidth.Limiter
		rate      *int64
		limit     uint64
		direction string
	}{{&b.Request, &b.requestRate, limit.RequestBytesPerSecond, "request"}, {&b.Response, &b.responseRate, limit.ResponseBytesPerSecond, "response"}} {
		if of.limit == 0 {
			continue
		}
		rate := int64(min(of.limit, math.MaxInt64))
		key := fmt.Sprintf("%s\n%s\n%s %d\n%s", c.Traffic.Policy, config.WholeRouteKey(route), c.Name, c.Index, of.direction)
		l, done := p.limiters.Take(key, func() *bandwidth.Limiter { return bandwidth.New(rate, BandwidthNow()) })
		*of.limiter, *of.rate = l, rate
		release = append(release, done)
	}
	if limit.TrailerPrefix != nil {
		prefix := *limit.TrailerPrefix
		if prefix != "" {
			prefix += "-"
		}
		for _, name := range DelayTrailers {
			b.Trailers = append(b.Trailers, []byte(prefix+name))
		}
	}
	return b, release
}

// Limiters returns the number of bandwidth limiters.
func (p *Compiler) Limiters() int { return p.limiters.Len() }
