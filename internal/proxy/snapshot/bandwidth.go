package snapshot

import (
	"fmt"
	"math"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/bandwidth"
)

// BandwidthLimit paces the bodies of a rule.
type BandwidthLimit struct {
	Request, Response *bandwidth.Limiter // nil is no limit
	// Trailers are the names of fields, in the order of DelayTrailers, by which responses tell of it; nil where they do not.
	Trailers [][]byte

	requestRate, responseRate int64 // bytes a second, which the limiters are given by enforce
}

// DelayTrailers are the names of those fields without a prefix: how long a request and its response took to be transferred, and by how much each was held up for that, in ms.
var DelayTrailers = [...]string{"bandwidth-request-delay-ms", "bandwidth-response-delay-ms", "bandwidth-request-filter-delay-ms", "bandwidth-response-filter-delay-ms"}

// bandwidthBegan is when the clock began that limiters have.
var bandwidthBegan = time.Now()

// BandwidthNow is the clock of limiters.
func BandwidthNow() time.Duration { return time.Since(bandwidthBegan) }

// enforce has the limiters keep to the rates of the rule, whose whole route is accepted; nil does nothing. That changes the rate of what is under way, too.
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

// bandwidth compiles the limits of a rule. An edit of it leaves what was taken as it is. Limiters that are shared with the rule before keep its rates until enforce.
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

// Limiters returns how many limiters of bandwidth there are.
func (p *Compiler) Limiters() int { return p.limiters.Len() }
