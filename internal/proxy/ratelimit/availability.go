package ratelimit

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"
)

// How long a server must be unreachable before statuses report it, and how much slower that is taken back: short
// outages are not reported, but a server that is unreachable for more than a third of the time is, however short each
// outage.
const (
	awayAfter = 5 * time.Second
	backRatio = 2
)

// maxCause is the largest size in bytes of a reported cause: the server may send any text, and it is sent to the
// controller and logged.
const maxCause = 512

// clean makes text valid for a protobuf string.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "")
}

// availability is whether a server answers, and what is reported about it. The zero value means that it has never
// answered.
type availability struct {
	mu     sync.Mutex
	up     bool
	at     time.Time     // time up to which missed counts
	missed time.Duration // how long it was unreachable, less a share of the time for which it has been reachable since; at most awayAfter
	cause  string        // why it was last unreachable, bounded; "" if unknown
	said   string        // the reported sentence; "" if none
}

// set records that the server answers from now on, or why it does not.
func (a *availability) set(up bool, cause error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	a.up = up
	if cause != nil {
		a.cause = clean(cause.Error())
	}
}

// advance brings missed up to date. mu must be held.
func (a *availability) advance(now time.Time) {
	passed := now.Sub(a.at)
	switch first := a.at.IsZero(); {
	case first || passed < 0:
	case a.up:
		a.missed = max(0, a.missed-passed/backRatio)
	default:
		a.missed = min(awayAfter, a.missed+passed)
	}
	a.at = now
}

// say returns the sentence about an unreachable server, and keeps returning it until the server has been reachable for
// a while; "" if there is none.
func (a *availability) say(now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	switch {
	case a.missed == 0:
		a.said = ""
	case a.missed == awayAfter && a.said == "":
		a.said = a.cause
	}
	return a.said
}

// Unavailable returns a sentence about a server that has been unreachable for some seconds, or was until recently; the
// sentence stays the same meanwhile. It returns "" if the server is available.
func (r *Redis) Unavailable() string {
	cause := r.availability.say(time.Now())
	if cause == "" {
		return ""
	}
	requests := "requests pass without being counted"
	if r.service.FailClosed {
		requests = "requests are refused with 503"
	}
	return fmt.Sprintf("Redis at %s is away, and %s: %s", cmp.Or(addressOf(r.service), "an unknown address"), requests, cause)
}
