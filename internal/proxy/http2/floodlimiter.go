package http2

// floodLimiter is a budget that useless frames spend and useful ones earn, and that recovers with time.
type floodLimiter struct {
	burst, rate int64
	spent       int64 // in thousandths
	at          int64 // time in ms up to which the recovery has been counted
}

// newFloodLimiter returns a full budget of burst, which recovers by rate per second.
func newFloodLimiter(burst, rate int64) floodLimiter { return floodLimiter{burst: burst, rate: rate} }

// spend spends cost at the time now (in ms), and reports whether the budget sufficed.
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
