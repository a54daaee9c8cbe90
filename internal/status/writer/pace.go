package writer

import "time"

// How fast one object is written to. The burst is for a Gateway that comes up;
// the rate for whatever goes on after that, a fight with another writer included.
const (
	writeBurst    = 10
	writeInterval = time.Second
)

// pace bounds the writes to one object; the zero value has the whole burst.
type pace struct {
	full time.Time // when the whole burst is there again
}

// take spends one write, or says how long it is until there is one.
func (p *pace) take(now time.Time) (wait time.Duration) {
	if p.full.Before(now) {
		p.full = now
	}
	if owed := p.full.Sub(now); owed > (writeBurst-1)*writeInterval {
		return owed - (writeBurst-1)*writeInterval
	}
	p.full = p.full.Add(writeInterval)
	return 0
}

// How long a write that failed waits: for an API server that is away less than for
// one that refuses, because then everyone waits, and for the same thing.
const (
	backoffStart = time.Second
	backoffAway  = 4 * time.Second
	backoffMax   = time.Minute
)

// backoff is the wait after that many failures in a row, at least 1.
func backoff(failures int, limit time.Duration) time.Duration {
	wait := backoffStart
	for range failures - 1 {
		if wait *= 2; wait >= limit {
			return limit
		}
	}
	return wait
}
