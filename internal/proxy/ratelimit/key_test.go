package ratelimit

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// everyCondition is a limit with each kind of condition.
func everyCondition() *config.RateLimit {
	return &config.RateLimit{Name: "n/p/rule/3", Requests: 7, PeriodSeconds: 60, RequestCost: 1,
		HeaderFields: []*config.RateLimitValue{{Name: "a", Type: config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION, Value: "b+", Invert: true}, each("c")},
		Methods:      []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET", Invert: true}, {Value: "PUT"}}}},
		Paths: []*config.RateLimitPath{{Path: &config.RateLimitPath_Exact{Exact: "/e"}}, {Path: &config.RateLimitPath_Prefix{Prefix: "/p"}, Invert: true},
			{Path: &config.RateLimitPath_RegularExpression{RegularExpression: "/r.*"}}},
		Sources:     []*config.RateLimitSource{{Cidr: "192.0.2.0/24", Distinct: true}, {Cidr: "2001:db8::/32", Invert: true}},
		QueryParams: []*config.RateLimitValue{{Name: "q", Value: "v"}}}
}

// TestRedisKey pins keys in Redis: proxies of two versions count together while one replaces the other, so that a change of these has limits begin anew.
func TestRedisKey(t *testing.T) {
	plain := &config.RateLimit{Name: "n/p/rule/0", Requests: 7, PeriodSeconds: 60, RequestCost: 1}
	for want, c := range map[string]*config.RateLimit{
		"n/p:575630a660cf2960bfe0903ca3a78350": plain,
		"n/p:825ca28b7297caba63c8b2e79b81791f": everyCondition(),
	} {
		if got := compileGlobal(t, &Store{}, c).global[0].redisKey; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestConditionsTellApart: a change of any field of any condition, and one condition less, gives other bytes, so that no two limits count in one place that ask for
// different things. Fields that are new are among them.
func TestConditionsTellApart(t *testing.T) {
	notConditions := map[protoreflect.Name]bool{"name": true, "requests": true, "period_seconds": true, "request_cost": true, "response_cost": true, "shared": true, "shadow": true, "headers": true}
	seen := map[string]string{string(appendConditions(nil, everyCondition())): "no change"}
	check := func(what string, c *config.RateLimit) {
		b := string(appendConditions(nil, c))
		if other, is := seen[b]; is {
			t.Errorf("%s: the bytes of %s", what, other)
		}
		seen[b] = what
	}
	fields := 0
	var walk func(path string, at func(*config.RateLimit) protoreflect.Message, top bool)
	walk = func(path string, at func(*config.RateLimit) protoreflect.Message, top bool) {
		m := at(everyCondition())
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			what := path + "." + string(f.Name())
			switch {
			case top && notConditions[f.Name()] || f.ContainingOneof() != nil && !m.Has(f):
			case f.IsList():
				list := m.Get(f).List()
				if list.Len() == 0 {
					t.Errorf("%s is not in everyCondition", what)
				}
				less := everyCondition()
				at(less).Mutable(f).List().Truncate(list.Len() - 1)
				check(what+" less one", less)
				for k := range list.Len() {
					walk(what, func(c *config.RateLimit) protoreflect.Message { return at(c).Mutable(f).List().Get(k).Message() }, false)
				}
			default:
				fields++
				c := everyCondition()
				at(c).Set(f, other(t, f, m.Get(f)))
				check(what, c)
			}
		}
	}
	walk("", func(c *config.RateLimit) protoreflect.Message { return proto.Message(c).ProtoReflect() }, true)
	if fields < 20 {
		t.Errorf("only %d fields were changed", fields)
	}
	moved := everyCondition()
	moved.Paths[0].Path = &config.RateLimitPath_Prefix{Prefix: "/e"}
	check("another kind of path", moved)
}

// other is a value that differs.
func other(t *testing.T, f protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(!v.Bool())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(v.String() + "x")
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum((v.Enum() + 1) % 3)
	}
	t.Fatalf("%s is of kind %s", f.FullName(), f.Kind())
	return v
}
