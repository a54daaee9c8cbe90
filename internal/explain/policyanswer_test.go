package explain

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestPolicyAnswers: where a policy answers every request itself, no backend is said to.
func TestPolicyAnswers(t *testing.T) {
	limit := func(requests uint32, sources ...*config.RateLimitSource) *config.RateLimit {
		return &config.RateLimit{Name: "n/p/rule/0", Requests: requests, PeriodSeconds: 60, RequestCost: 1, Sources: sources}
	}
	limits := func(local ...*config.RateLimit) *config.RuleTraffic {
		return &config.RuleTraffic{RateLimits: &config.RateLimits{Local: local}}
	}
	abort := func(a *config.FaultAbort) *config.RuleTraffic {
		return &config.RuleTraffic{FaultInjection: &config.FaultInjection{Abort: a}}
	}
	green := limit(0)
	green.HeaderFields = []*config.RateLimitValue{{Name: "x-color", Value: "green"}}
	shadow, costly, reports := limit(0), limit(3), limit(5)
	shadow.Shadow, costly.RequestCost = true, 5
	reports.Paths, reports.Name = []*config.RateLimitPath{{Path: &config.RateLimitPath_Prefix{Prefix: "/set"}}}, "n/p/rule/1"
	ipv4, ipv6 := &config.RateLimitSource{Cidr: "0.0.0.0/0"}, &config.RateLimitSource{Cidr: "::/0", Distinct: true}
	for name, c := range map[string]struct {
		traffic *config.RuleTraffic
		url     string
		headers []string
		status  int
		reason  string
		says    string
		is200   bool
	}{
		"an abort of all":         {abort(&config.FaultAbort{HttpStatus: 418, PerMillion: 1_000_000}), "", nil, 418, "fault_injected", "418 fault_injected: ", false},
		"an abort with success":   {abort(&config.FaultAbort{HttpStatus: 200, PerMillion: 1_000_000}), "", nil, 200, "fault_injected", "200 fault_injected: ", true},
		"an abort of gRPC":        {abort(&config.FaultAbort{GrpcStatus: new(uint32(14)), PerMillion: 1_000_000}), "", nil, 503, "fault_injected", "BackendTrafficPolicy n/p has it answer every request", false},
		"an abort of some":        {abort(&config.FaultAbort{HttpStatus: 418, PerMillion: 999_999}), "", nil, 0, "ok", "what the backend answers", true},
		"a limit of none":         {limits(limit(0)), "", nil, 429, "rate_limited", "rate limit n/p/rule/0 lets none pass", false},
		"a limit below its cost":  {limits(costly), "", nil, 429, "rate_limited", "", false},
		"a global limit of none":  {&config.RuleTraffic{RateLimits: &config.RateLimits{Global: []*config.RateLimit{limit(0)}}}, "", nil, 429, "rate_limited", "", false},
		"a limit of some":         {limits(limit(1)), "", nil, 0, "ok", "what the backend answers", true},
		"in shadow mode":          {limits(shadow), "", nil, 0, "ok", "", true},
		"another limit comes":     {limits(limit(0), reports), "", nil, 0, "ok", "", true},
		"no other limit comes":    {limits(limit(0), reports), "/set/../chat", nil, 429, "rate_limited", "rate limit n/p/rule/0", false},
		"another header":          {limits(green), "", nil, 0, "ok", "", true},
		"a header":                {limits(green), "", []string{"X-Color: green"}, 429, "rate_limited", "", false},
		"all of IPv4":             {limits(limit(0, ipv4)), "", nil, 0, "ok", "what the backend answers, except 429 rate_limited for clients with an address of IPv4, by rate limit n/p/rule/0", false},
		"all of IPv4, and IPv4":   {limits(limit(0, ipv4)), "http://127.0.0.1/set", nil, 429, "rate_limited", "", false},
		"all of IPv4, and IPv6":   {limits(limit(0, ipv4)), "http://[::1]/set", nil, 0, "ok", "what the backend answers", true},
		"all of both":             {limits(limit(0, ipv4), limit(0, ipv6)), "", nil, 429, "rate_limited", "", false},
		"not of IPv6":             {limits(limit(0, &config.RateLimitSource{Cidr: "::/0", Invert: true})), "http://127.0.0.1/set", nil, 429, "rate_limited", "", false},
		"some clients":            {limits(limit(0, &config.RateLimitSource{Cidr: "10.0.0.0/8"})), "", nil, 0, "ok", "", true},
		"some of them, elsewhere": {limits(limit(0), limit(5, &config.RateLimitSource{Cidr: "10.0.0.0/8"})), "", nil, 0, "ok", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			c.traffic.Policy = "BackendTrafficPolicy n/p"
			for _, r := range w.Resources {
				for _, rule := range r.GetRoute().GetRules() {
					rule.Traffic = c.traffic
				}
			}
			url := c.url
			if !strings.Contains(url, "://") {
				url = "http://a.test" + url
			}
			if c.url == "" {
				url += "/set"
			}
			e := explained(t, w, "GET", url, c.headers...)
			if e.Answer.Status != c.status || e.Answer.Reason != c.reason || !strings.Contains(e.Answer.Text, c.says) || e.Is("200") != c.is200 {
				t.Errorf("%+v, is 200: %v", e.Answer, e.Is("200"))
			}
			if c.status != 0 && (len(e.Backends) > 0 || len(e.Settings) == 0) {
				t.Errorf("backends %v, settings %q", e.Backends, e.Settings)
			}
		})
	}
}
