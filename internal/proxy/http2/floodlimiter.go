package http2

// floodLimiter is spent by what is useless and earned by what is not, and fills up with time.
type floodLimiter struct {
	burst, rate int64
	spent       int64 // in thousandths
	at          int64 // ms, until when time has been counted
}

// newFloodLimiter returns a full budget of burst, to which rate is added each second while it is not full.
func newFloodLimiter(burst, rate int64) floodLimiter { return floodLimiter{burst: burst, rate: rate} }

// spend takes cost at the time now (ms), and reports whether there was enough.
func (b *floodLimiter) spend(now, cost int64) bool {
	if d := now - b.at; d > 0 {
		b.spent = max(0, b.spent-min(d, 3600_000)*b.rate)
		b.at = now
	}
	b.spent += cost * 1000
	return b.spent <= b.burst*1000
}

// earn gives n back.
func (b *floodLimiter) earn(n int64) { b.spent = max(0, b.spent-n*1000) }
