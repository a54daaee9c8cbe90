package ratelimit

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestAvailabilityIsSaidCalmly: a server that is away is reported after a while, in the same words, and until it has been back for a while.
func TestAvailabilityIsSaidCalmly(t *testing.T) {
	var a availability
	start := time.Now()
	one, other := errors.New("one"), errors.New("other")
	for i, step := range []struct {
		at    time.Duration
		up    bool
		cause error
		want  string
	}{
		{0, false, nil, ""},
		{awayAfter - 1, false, one, ""},
		{awayAfter - 1, true, nil, ""},
		{3*awayAfter - 1, false, one, ""}, // it begins anew
		{4*awayAfter - 2, false, one, ""},
		{4*awayAfter - 1, false, one, "one"},
		{5 * awayAfter, false, other, "one"},
		{6 * awayAfter, true, nil, "one"},
		{8*awayAfter - 2, true, nil, "one"},
		{8 * awayAfter, true, nil, ""},
		{9 * awayAfter, false, other, ""},
		{10 * awayAfter, false, nil, "other"},
	} {
		now := start.Add(step.at)
		a.set(step.up, step.cause, now)
		if got := a.say(now); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestFlappingIsSaid: a server that is never away for long, but again and again, is reported all the time, also when a look finds it there.
func TestFlappingIsSaid(t *testing.T) {
	var a availability
	now := time.Now()
	a.set(true, nil, now)
	a.set(false, errors.New("it goes"), now)
	var said []string
	for range 20 {
		now = now.Add(awayAfter / 2)
		a.set(true, nil, now)
		said = append(said, a.say(now))
		now = now.Add(awayAfter / 2)
		said = append(said, a.say(now))
		a.set(false, nil, now)
	}
	first := slices.Index(said, "it goes")
	if first < 0 || first > 10 || slices.Contains(said[first:], "") {
		t.Errorf("said: %q", said)
	}
}

// TestUnavailable: a server that leaves is reported, without its password, until it is back; also where nobody asks it anything.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for mode, requests := range map[bool]string{false: "requests pass without being counted", true: "requests are refused with 503"} {
		t.Run(requests, func(t *testing.T) {
			t.Parallel()
			testUnavailable(t, mode, requests)
		})
	}
}

func testUnavailable(t *testing.T, failClosed bool, requests string) {
	server := testkit.StartRedis(t)
	command(t, server, "ACL", "SETUSER", "default", ">password")
	c := patient("redis://default:password@"+server.Address, false)
	c.FailClosed = failClosed
	redis := connected(t, c)
	if said := redis.Unavailable(); said != "" {
		t.Errorf("of a server that is there: %s", said)
	}
	server.Kill()
	testkit.Eventually(t, "that it is away is said", func() bool { return redis.Unavailable() != "" })
	want := "Redis at " + server.Address + " is away, and " + requests + ": dial tcp " + server.Address + ": connect: connection refused"
	if said := redis.Unavailable(); said != want {
		t.Errorf("%q, want %q", said, want)
	}
	server.Start(t)
	testkit.Eventually(t, "that it is back is said", func() bool { return redis.Unavailable() == "" })
}

// TestCauseIsClean: whatever a server says can be sent to the controller.
func TestCauseIsClean(t *testing.T) {
	for _, text := range []string{"\xff", strings.Repeat("\xff", 600), strings.Repeat("é", 400), "x" + strings.Repeat("😀", 300)} {
		var a availability
		start := time.Now()
		a.set(false, errors.New(text), start)
		said := a.say(start.Add(awayAfter))
		if said == "" || len(said) > maxCause || !utf8.ValidString(said) {
			t.Errorf("of %q is said %q", text, said)
		}
	}
}
