package writer

import "time"

// The maximum rate of writes to one object. The burst is for a Gateway that starts; the rate for everything that continues after
// that, including a conflict with another writer.
const (
	writeBurst    = 10
	writeInterval = time.Second
)

// pace limits the writes to one object; the zero value has the whole burst.
type pace struct {
	full time.Time // when the whole burst is available again
}

// take uses one write of the burst, or returns how long it takes until there is one.
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

// How long a failed write waits: less if the API server does not answer than if it rejects the write, because in the first case all
// objects wait, for the same thing.
const (
	backoffStart = time.Second
	backoffAway  = 4 * time.Second
	backoffMax   = time.Minute
)

// backoff returns the wait after that many consecutive failures, at least 1.
func backoff(failures int, limit time.Duration) time.Duration {
	wait := backoffStart
	for range failures - 1 {
		if wait *= 2; wait >= limit {
			return limit
		}
	}
	return wait
}
