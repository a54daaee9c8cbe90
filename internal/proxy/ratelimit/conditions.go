package ratelimit

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
)

// conditions are the conditions of a limit. All must hold.
type conditions struct {
	methods []methods
	sources []source
	paths   []path
	headers []header
	query   []query
}

type methods []method // one of which holds

type method struct {
	value  string
	invert bool
}

type source struct {
	prefix           netip.Prefix
	distinct, invert bool
}

// wholeFrom is the prefix length from which on a range distinguishes whole IPv6 addresses. With shorter ranges only the
// first wholeFrom bits are distinguished, because hosts are commonly given a network of that size.
const wholeFrom = 64

// value returns the value by which a client of the source is distinguished from others.
func (s *source) value(client netip.Addr) (ip [16]byte) {
	ip = client.As16()
	if client.Is6() && s.prefix.Bits() < wholeFrom {
		clear(ip[wholeFrom/8:])
	}
	return ip
}

type path struct {
	match.PathCondition
	invert bool
}

type header struct {
	match.HeaderCondition
	name             string
	distinct, invert bool
}

type query struct {
	match.QueryCondition
	name             string
	distinct, invert bool
}

func compileConditions(c *config.RateLimit) (out conditions, err error) {
	for _, m := range c.Methods {
		var any methods
		for _, o := range m.AnyOf {
			any = append(any, method{o.Value, o.Invert})
		}
		out.methods = append(out.methods, any)
	}
	for _, s := range c.Sources {
		p, err := netip.ParsePrefix(s.Cidr)
		if err != nil {
			return out, fmt.Errorf("source: %w", err)
		}
		out.sources = append(out.sources, source{config.UnmapPrefix(p).Masked(), s.Distinct, s.Invert})
	}
	for _, p := range c.Paths {
		m := &config.PathMatch{}
		switch v := p.Path.(type) {
		case *config.RateLimitPath_Exact:
			m.Type, m.Value = config.PathMatchType_PATH_MATCH_TYPE_EXACT, v.Exact
		case *config.RateLimitPath_Prefix:
			m.Type, m.Value = config.PathMatchType_PATH_MATCH_TYPE_PREFIX, v.Prefix
		case *config.RateLimitPath_RegularExpression:
			m.Type, m.Value = config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, v.RegularExpression
		default:
			return out, fmt.Errorf("path: it has no value")
		}
		pc, err := match.CompilePath(m)
		if err != nil {
			return out, fmt.Errorf("path: %w", err)
		}
		out.paths = append(out.paths, path{pc, p.Invert})
	}
	for _, h := range c.HeaderFields {
		hc, err := match.CompileHeader(valueMatch(h))
		if err != nil {
			return out, fmt.Errorf("header %s: %w", h.Name, err)
		}
		out.headers = append(out.headers, header{hc, h.Name, distinct(h), h.Invert})
	}
	for _, q := range c.QueryParams {
		qc, err := match.CompileQuery(valueMatch(q))
		if err != nil {
			return out, fmt.Errorf("query parameter %s: %w", q.Name, err)
		}
		out.query = append(out.query, query{qc, q.Name, distinct(q), q.Invert})
	}
	return out, nil
}

func valueMatch(v *config.RateLimitValue) *config.ValueMatch {
	return &config.ValueMatch{Name: v.Name, Value: v.Value, RegularExpression: v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION}
}

func distinct(v *config.RateLimitValue) bool {
	return v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT
}

// none reports whether the limit applies to all requests.
func (c *conditions) none() bool {
	return len(c.methods)+len(c.sources)+len(c.paths)+len(c.headers)+len(c.query) == 0
}

// distinct reports whether each value has its own limit.
func (c *conditions) distinct() bool { return c.distinctNames() != "" }

// distinctNames returns the names whose values are distinguished.
func (c *conditions) distinctNames() string {
	var b strings.Builder
	for i := range c.sources {
		if c.sources[i].distinct {
			b.WriteString("source;")
		}
	}
	for i := range c.headers {
		if c.headers[i].distinct {
			fmt.Fprintf(&b, "header %q;", c.headers[i].name)
		}
	}
	for i := range c.query {
		if c.query[i].distinct {
			fmt.Fprintf(&b, "query %q;", c.query[i].name)
		}
	}
	return b.String()
}

// seed makes the hashes unpredictable.
var seed = maphash.MakeSeed()

// sum is the hash of several values.
type sum uint64

func (s *sum) add(value []byte) { s.mix(maphash.Bytes(seed, value)) }

func (s *sum) mix(n uint64) { *s = sum(bits.RotateLeft64(uint64(*s), 23)*0x9e3779b97f4a7c15 + n) }

// The kinds of distinguished values. All requests with several values of a name count as one value: it is unknown which
// of them the backend uses, and each could otherwise be combined with different ones.
const (
	single  = 's'
	several = 'm'
)

// hold reports whether the conditions hold, and returns the hash of the distinguished values.
func (c *conditions) hold(req *Request, steps *match.Steps) (hash uint64, ok bool) {
	for _, any := range c.methods {
		if !any.hold(req.Method) {
			return 0, false
		}
	}
	var h sum
	for i := range c.sources {
		s := &c.sources[i]
		client := req.client()
		if s.prefix.Contains(client) == s.invert {
			return 0, false
		}
		if s.distinct {
			ip := s.value(client)
			h.add(ip[:])
		}
	}
	for i := range c.paths {
		if p := &c.paths[i]; p.Holds(req.Path, steps) == p.invert {
			return 0, false
		}
	}
	for i := range c.headers {
		f := &c.headers[i]
		if !f.distinct {
			if !f.Holds(req.Request, f.invert, steps) {
				return 0, false
			}
			continue
		}
		switch value, lines := f.Value(req.Request); lines {
		case 0:
			return 0, false
		case 1:
			h.add(value)
			h.mix(single)
		default:
			h.mix(several)
		}
	}
	for i := range c.query {
		q := &c.query[i]
		if !q.distinct {
			if !q.Holds(req.Query, q.invert, steps) {
				return 0, false
			}
			continue
		}
		var buf [128]byte
		switch value, params := q.AppendValue(buf[:0], req.Query); params {
		case 0:
			return 0, false
		case 1:
			h.add(value)
			h.mix(single)
		default:
			h.mix(several)
		}
	}
	return uint64(h), true
}

// appendDistinct appends the distinguished values of a request for which the conditions hold. Different values have
// different bytes, whatever they contain.
func (c *conditions) appendDistinct(dst []byte, req *Request) []byte {
	add := func(value []byte, n int) {
		if n > 1 {
			dst = append(dst, several)
			return
		}
		dst = binary.AppendUvarint(append(dst, single), uint64(len(value)))
		dst = append(dst, value...)
	}
	for i := range c.sources {
		if s := &c.sources[i]; s.distinct {
			ip := s.value(req.client())
			add(ip[:], 1)
		}
	}
	for i := range c.headers {
		if f := &c.headers[i]; f.distinct {
			add(f.Value(req.Request))
		}
	}
	for i := range c.query {
		if q := &c.query[i]; q.distinct {
			add(q.AppendValue(nil, req.Query))
		}
	}
	return dst
}

func (m methods) hold(value []byte) bool {
	for i := range m {
		if (string(value) == m[i].value) != m[i].invert {
			return true
		}
	}
	return false
}

// newBuckets returns full buckets.
func (s *Store) newBuckets(r rate, distinct bool) *buckets {
	b := &buckets{}
	if distinct {
		b.table = s.newTable(r)
	}
	return b
}
