package ratelimit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
)

// key names the buckets of a limit: another rate has others, since what is in a bucket cannot be told in its terms, and so have other conditions, which are for other
// requests. The place of the limit among those of its policy is not in it, so that an edit of others leaves it alone.
func (l *limit) key(route string) string {
	if l.config.Shared {
		route = ""
	}
	c := l.config
	digest := sha256.Sum256(appendConditions(nil, c))
	return fmt.Sprintf("%s %s %d/%d %x", config.RateLimitPolicy(c.Name), route, c.Requests, c.PeriodSeconds, digest[:16])
}

// redisKey is the name of a limit's policy, for people, and a digest of all that tells it from others, so that keys are short whatever policies say.
func redisKey(name, key string) string {
	digest := sha256.Sum256([]byte(key))
	return name + ":" + hex.EncodeToString(digest[:16])
}

// unique makes the keys of limits differ that are alike, so that each counts a request once. keys has how many there were of each key.
func unique(keys map[string]int, key string) string {
	n := keys[key]
	keys[key]++
	if n == 0 {
		return key
	}
	return fmt.Sprintf("%s #%d", key, n)
}

// appendConditions appends what a limit asks for; no other conditions have the same bytes. They are in the keys in Redis, and proxies of two versions count together while
// one replaces the other: so the bytes are not those of package proto, which promises them for one version alone, and a kind of condition that is new must add nothing
// where a limit has none of it.
func appendConditions(dst []byte, c *config.RateLimit) []byte {
	dst = appendValues(dst, c.HeaderFields)
	dst = appendNumber(dst, len(c.Methods))
	for _, m := range c.Methods {
		dst = appendNumber(dst, len(m.AnyOf))
		for _, o := range m.AnyOf {
			dst = appendFlag(appendText(dst, o.Value), o.Invert)
		}
	}
	dst = appendNumber(dst, len(c.Paths))
	for _, p := range c.Paths {
		dst = appendFlag(appendPath(dst, p), p.Invert)
	}
	dst = appendNumber(dst, len(c.Sources))
	for _, s := range c.Sources {
		dst = appendFlag(appendFlag(appendText(dst, s.Cidr), s.Distinct), s.Invert)
	}
	return appendValues(dst, c.QueryParams)
}

func appendValues(dst []byte, values []*config.RateLimitValue) []byte {
	dst = appendNumber(dst, len(values))
	for _, v := range values {
		dst = appendNumber(appendText(dst, v.Name), int(v.Type))
		dst = appendFlag(appendText(dst, v.Value), v.Invert)
	}
	return dst
}

func appendPath(dst []byte, p *config.RateLimitPath) []byte {
	switch v := p.Path.(type) {
	case *config.RateLimitPath_Exact:
		return appendText(append(dst, 'e'), v.Exact)
	case *config.RateLimitPath_Prefix:
		return appendText(append(dst, 'p'), v.Prefix)
	case *config.RateLimitPath_RegularExpression:
		return appendText(append(dst, 'r'), v.RegularExpression)
	}
	return append(dst, 0)
}

func appendText(dst []byte, s string) []byte { return append(appendNumber(dst, len(s)), s...) }

func appendNumber(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)) }

func appendFlag(dst []byte, set bool) []byte {
	if set {
		return append(dst, 1)
	}
	return append(dst, 0)
}
