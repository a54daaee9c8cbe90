package http2

// Limits on what a client may request without useful work. Normal clients stay far below them.
const (
	controlBurst, controlRate = 1024, 128 // frames at once, and per second
	resetBurst, resetRate     = 256, 64   // streams at once, and per second
	maxContinuations          = 32        // CONTINUATION frames of one header block
	maxControl                = 16 << 10  // bytes of control frames that wait to be written
	maxWidened                = 4 << 20   // bytes by which the windows of all streams of a client may exceed their initial size
	backendWindow             = 256 << 10 // largest initial window of a stream to a backend, in bytes

	earningData     = 64  // bytes of a DATA frame sent for which the peer may send control frames
	bytesPerControl = 256 // number of bytes for which the peer may send one more

	// costReset is the cost of a stream that is reset by the client or because of it, in streams that ended by
	// themselves, each of which earns 1. A request that is given up costs the connection to its backend, and one that
	// the gateway itself answers costs little: if one such request compensated for a reset, a client could reset
	// streams as fast as it likes. A client that gives up one of three requests exceeds the budget only with more than
	// 128 resets per second, and one that gives up one of five never does.
	costReset = 4

	costSettings     = 8 // visits all streams
	costContinuation = 8
	costEmptyData    = 2
)

// control charges for frames that achieve nothing.
func (c *Conn) control(cost int64) error {
	if c.controls.spend(c.now, cost) {
		return nil
	}
	return connError(EnhanceYourCalm, "too many control frames")
}

// provoked charges for a stream that was reset by the client, or because of it.
func (c *Conn) provoked() error {
	if c.resets.spend(c.now, costReset) {
		return nil
	}
	return connError(EnhanceYourCalm, "too many resets")
}
