// Package budget counts what a peer may ask for without bringing anything forward. It exists so that floods of all
// kinds are cut off by one rule.
//
// It is pure, imports nothing, and is not safe for concurrent use; what costs what is the connection's to say.
package budget

// Budget is spent by what is useless and earned by what is not, and fills up with time.
type Budget struct {
	burst, rate int64
	spent       int64 // in thousandths
	at          int64 // ms, until when time has been counted
}

// New makes a full budget of burst, to which rate is added each second while it is not full.
func New(burst, rate int64) Budget { return Budget{burst: burst, rate: rate} }

// Spend takes cost at the time now (ms), and tells whether there was enough.
func (b *Budget) Spend(now, cost int64) bool {
	if d := now - b.at; d > 0 {
		b.spent = max(0, b.spent-min(d, 3600_000)*b.rate)
		b.at = now
	}
	b.spent += cost * 1000
	return b.spent <= b.burst*1000
}

// Earn gives n back.
func (b *Budget) Earn(n int64) { b.spent = max(0, b.spent-n*1000) }
