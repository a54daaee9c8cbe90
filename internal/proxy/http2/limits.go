package http2

// What a client may ask of us without bringing anything forward. Nobody honest comes near it.
const (
	controlBurst, controlRate = 1024, 128 // frames at once, and per second
	resetBurst, resetRate     = 256, 64   // streams at once, and per second
	maxContinuations          = 32        // CONTINUATION frames of one header block
	maxControl                = 16 << 10  // bytes of control frames that wait to be written
	maxWidened                = 4 << 20   // bytes by which all streams of a client may have more than their first windows
	backendWindow             = 256 << 10 // bytes of the largest window that a stream to a backend begins with

	earningData     = 64  // bytes of a DATA frame of ours that is worth control frames of the peer
	bytesPerControl = 256 // and for how many bytes it is worth another one

	// costReset is what a stream costs that the client has us reset, in streams that ended by themselves, each of which earns 1. A request that is given up costs the
	// connection to its backend, and one that the gateway answers itself costs little: worth a reset each they would let a client reset streams as fast as it likes.
	// A client that gives up one of three requests runs short with more than 128 resets per second only, and one that gives up one of five never.
	costReset = 4

	costSettings     = 8 // goes through all streams
	costContinuation = 8
	costEmptyData    = 2
)

// control charges for frames that bring nothing forward.
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
