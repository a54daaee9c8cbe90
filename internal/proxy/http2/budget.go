package http2

// What a client may ask of us without bringing anything forward. Nobody honest comes near it.
const (
	controlBurst, controlRate = 1024, 128 // frames at once, and per second
	resetBurst, resetRate     = 256, 64   // streams at once, and per second
	maxContinuations          = 32        // CONTINUATION frames of one header block
	maxControl                = 16 << 10  // bytes of control frames that wait to be written

	costSettings     = 8 // goes through all streams
	costContinuation = 8
	costEmptyData    = 2
)

// budget is spent by what is useless and earned by what is not. The zero value is full.
type budget struct {
	burst, rate int64
	spent       int64 // in thousandths
	at          int64 // ms, until when time has been counted
}

// spend takes cost at the time now (ms), and tells whether there was enough.
func (b *budget) spend(now, cost int64) bool {
	if d := now - b.at; d > 0 {
		b.spent = max(0, b.spent-min(d, 3600_000)*b.rate)
		b.at = now
	}
	b.spent += cost * 1000
	return b.spent <= b.burst*1000
}

func (b *budget) earn(n int64) { b.spent = max(0, b.spent-n*1000) }

// control charges for frames that bring nothing forward.
func (c *Conn) control(cost int64) error {
	if c.controls.spend(c.now, cost) {
		return nil
	}
	return &ConnError{EnhanceYourCalm, "too many control frames"}
}

// provoked charges for a stream that was reset by the client, or because of it.
func (c *Conn) provoked() error {
	if c.resets.spend(c.now, 1) {
		return nil
	}
	return &ConnError{EnhanceYourCalm, "too many resets"}
}
