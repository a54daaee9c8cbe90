package exchange

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestStreamLimitsLeft: what has moved counts from then on, and the duration from the beginning, whatever moves.
func TestStreamLimitsLeft(t *testing.T) {
	x := failing(t, 1, nil)
	x.start = time.Now()
	for name, c := range map[string]struct {
		rule        snapshot.Traffic
		began       time.Duration // so long ago
		moved       time.Duration // so long ago
		least, most time.Duration // is left
	}{
		"idle":                  {snapshot.Traffic{StreamIdleTimeout: time.Hour}, 2 * time.Hour, 30 * time.Minute, 29 * time.Minute, 30 * time.Minute},
		"idle for long":         {snapshot.Traffic{StreamIdleTimeout: time.Hour}, 2 * time.Hour, 90 * time.Minute, -time.Hour, 0},
		"duration":              {snapshot.Traffic{MaxStreamDuration: 3 * time.Hour}, 2 * time.Hour, 2 * time.Hour, 59 * time.Minute, time.Hour},
		"duration, and it runs": {snapshot.Traffic{MaxStreamDuration: time.Hour}, 2 * time.Hour, 0, -2 * time.Hour, -59 * time.Minute},
		"both, idle first":      {snapshot.Traffic{StreamIdleTimeout: time.Hour, MaxStreamDuration: 5 * time.Hour}, 2 * time.Hour, 30 * time.Minute, 29 * time.Minute, 30 * time.Minute},
		"both, duration first":  {snapshot.Traffic{StreamIdleTimeout: 10 * time.Hour, MaxStreamDuration: 3 * time.Hour}, 2 * time.Hour, 30 * time.Minute, 59 * time.Minute, time.Hour},
	} {
		l := &streamLimits{idle: c.rule.StreamIdleTimeout, began: time.Now().Add(-c.began)}
		l.moved.Store(int64(c.began - c.moved))
		if c.rule.MaxStreamDuration > 0 {
			l.until = l.began.Add(c.rule.MaxStreamDuration)
		}
		if left := l.left(); left < c.least || left > c.most {
			t.Errorf("%s: %v are left, want %v to %v", name, left, c.least, c.most)
		}
	}
}

// TestStreamLimitsExpire: a limit that runs out while nobody waits ends the next wait, and nothing of the exchange after it.
func TestStreamLimitsExpire(t *testing.T) {
	x := failing(t, 1, nil)
	x.rule.StreamIdleTimeout = time.Nanosecond
	x.start = time.Now()
	x.limitStream()
	testkit.Eventually(t, "the limit runs out", func() bool { _, lapsed := x.lapsed(); return lapsed })
	if reason, _ := x.lapsed(); reason != observe.ReasonStreamIdle || x.timeoutReason() != observe.ReasonStreamIdle {
		t.Errorf("%v and %v", reason, x.timeoutReason())
	}
	interrupted := false
	x.Client.Watch.begin(interrupterFunc(func() { interrupted = true }))
	if gone := x.Client.Watch.end(); !interrupted || gone {
		t.Errorf("interrupted %v, gone %v", interrupted, gone)
	}
	l := x.limits()
	x.endLimits()
	l.expire() // late
	x.Client.Watch.start()
	interrupted = false
	x.Client.Watch.begin(interrupterFunc(func() { interrupted = true }))
	if x.Client.Watch.end(); interrupted {
		t.Error("the next exchange is interrupted")
	}
	if _, lapsed := x.lapsed(); lapsed {
		t.Error("the next exchange has the limit of the one before")
	}
}
