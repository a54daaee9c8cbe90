package ratelimit

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestConditionsOnce: conditions that limits of many routes have in common are compiled once, and forgotten with the last of these.
func TestConditionsOnce(t *testing.T) {
	const routes = 1000
	expression := func(pattern string) []*config.RateLimitValue {
		return []*config.RateLimitValue{{Name: "x", Type: config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION, Value: pattern}}
	}
	limits := &config.RateLimits{
		Local: []*config.RateLimit{{Name: "default/p/rule/0", Requests: 1, PeriodSeconds: 60, RequestCost: 1, HeaderFields: expression("a+")},
			{Name: "default/p/rule/1", Requests: 2, PeriodSeconds: 60, RequestCost: 1, HeaderFields: expression("b+")}},
		Global: []*config.RateLimit{{Name: "default/p/rule/0", Requests: 3, PeriodSeconds: 60, RequestCost: 1, HeaderFields: expression("a+")}},
	}
	var s Store
	var releases []func()
	var all []*Rules
	for i := range routes {
		r, release, err := s.Compile(proto.CloneOf(limits), fmt.Sprintf("HTTPRoute/default/r%d", i)) // each route brings messages of its own
		if err != nil {
			t.Fatal(err)
		}
		all, releases = append(all, r), append(releases, release)
	}
	if n := s.conditions.Len(); n != 2 {
		t.Errorf("%d sets of conditions are compiled, want 2", n)
	}
	if all[0].local[0].conditions != all[routes-1].local[0].conditions {
		t.Error("two routes have conditions of their own")
	}
	if all[0].local[0].buckets == all[1].local[0].buckets {
		t.Error("two routes count together")
	}
	for _, release := range releases {
		release()
	}
	if n := s.conditions.Len(); n != 0 {
		t.Errorf("%d sets of conditions are left", n)
	}
}

// TestConditionsWithError: conditions that cannot be compiled are refused each time, and nothing is left of them.
func TestConditionsWithError(t *testing.T) {
	var s Store
	bad := &config.RateLimit{Name: "default/p/rule/0", Requests: 1, PeriodSeconds: 60, RequestCost: 1, Sources: []*config.RateLimitSource{{Cidr: "nowhere"}}}
	for _, limits := range []*config.RateLimits{{Local: []*config.RateLimit{bad}}, {Global: []*config.RateLimit{bad}}, {Local: []*config.RateLimit{bad}}} {
		_, release, err := s.Compile(limits, "HTTPRoute/default/r")
		if err == nil {
			t.Errorf("%v is compiled", limits)
		}
		release()
	}
	if n := s.conditions.Len() + s.over.Len() + s.buckets.Len(); n != 0 {
		t.Errorf("%d values are left", n)
	}
}
