package translate

import (
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// rateLimitServices contains the Redis servers for the Gateways with global rate limits. Other Gateways get none: the address may
// contain a password.
type rateLimitServices struct {
	limited *incremental.Index[name, routePart, *config.Resource] // routes with global limits, by Gateway
	all     *incremental.Collection[name, *config.RateLimitService]
}

func newRateLimitServices(e *incremental.Engine, redises *redises, gateways *gateways, routes *routes) *rateLimitServices {
	rs := &rateLimitServices{}
	rs.limited = incremental.NewIndex(routes.configs, "routes with global rate limits by Gateway", func(_ routePart, r *config.Resource) []name {
		for _, rule := range r.GetRoute().GetRules() {
			if len(rule.GetTraffic().GetRateLimits().GetGlobal()) > 0 {
				return gatewaysOf(r)
			}
		}
		return nil
	})
	limited := incremental.Keys(rs.limited, "Gateways with global rate limits")
	rs.all = incremental.Map(e, "rate limit service", gateways.managed,
		func(v *incremental.View, n name, g managedGateway) (*config.RateLimitService, bool) {
			if _, is := incremental.Fetch(v, limited, n); !is {
				return nil, false
			}
			s, p := redises.of(v, n)
			if p != nil {
				return nil, false
			}
			s = proto.CloneOf(s)
			s.Key, s.Merged = n.String(), g.Merged.String()
			return s, true
		}, sameMessage[*config.RateLimitService])
	return rs
}
