package ratelimit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
)

// key identifies the buckets of a limit. A limit with another rate has other buckets, since the state of a bucket
// depends on the rate, and so has one with other conditions, which apply to other requests. The position of the limit
// in its policy is not part of the key, so that edits of other limits do not affect it.
func (l *limit) key(route string) string {
	if l.config.Shared {
		route = ""
	}
	c := l.config
	digest := sha256.Sum256(appendConditions(nil, c))
	return fmt.Sprintf("%s %s %d/%d %x", config.RateLimitPolicy(c.Name), route, c.Requests, c.PeriodSeconds, digest[:16])
}

// redisKey returns the name of a limit's policy, for people, and a digest of everything that distinguishes the limit,
// so that keys are short whatever the policy.
func redisKey(name, key string) string {
	digest := sha256.Sum256([]byte(key))
	return name + ":" + hex.EncodeToString(digest[:16])
}

// unique makes the keys of equal limits differ, so that each counts a request once. keys has the number of limits with
// each key.
func unique(keys map[string]int, key string) string {
	n := keys[key]
	keys[key]++
	if n == 0 {
		return key
	}
	return fmt.Sprintf("%s #%d", key, n)
}

// appendConditions appends the conditions of a limit; different conditions have different bytes. They are part of the
// keys in Redis, and proxies of two versions count together while one replaces the other. So the bytes are not those of
// package proto, which are only stable within one version, and a new kind of condition must add nothing if a limit does
// not use it.
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
