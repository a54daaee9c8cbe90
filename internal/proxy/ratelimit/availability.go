package ratelimit

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// How long a server must be away before that is said in statuses, and how much slower that is taken back: who reads them is not told of moments, but of a server that
// is away for more than a third of the time, however short each absence.
const (
	awayAfter = 5 * time.Second
	backRatio = 2
)

// maxCause bounds what is said of the cause, in bytes: the server may say anything, and it goes to the controller and the log.
const maxCause = 512

// clean makes text fit for a message of protobuf.
func clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxCause)], "")
}

// availability is whether a server answers, and what is said of that. Its zero value is that it does not, since ever.
type availability struct {
	mu     sync.Mutex
	up     bool
	at     time.Time     // to which missed counts
	missed time.Duration // how long it was away, less a share of how long it was there since; at most awayAfter
	cause  string        // why it was away last, bounded; "" for not known
	said   string        // "" for nothing
}

// set notes that the server answers from now on, or why it does not.
func (a *availability) set(up bool, cause error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advance(now)
	a.up = up
	if cause != nil {
		a.cause = clean(cause.Error())
	}
}

// advance has missed count up to now. mu is held.
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

// say returns what is to be said of a server that is away, and goes on saying so until it has been back for a while; "" for nothing.
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

// Unavailable returns a sentence about a server that has not answered for some seconds, or has so for a few only; it stays the same meanwhile. "" is that it answers.
func (r *Redis) Unavailable() string {
	cause := r.availability.say(time.Now())
	if cause == "" {
		return ""
	}
	requests := "requests pass without being counted"
	if r.service.FailClosed {
		requests = "requests are refused with 503"
	}
	return fmt.Sprintf("Redis at %s is away, and %s: %s", addressOf(r.service), requests, cause)
}
