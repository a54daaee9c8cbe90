package tunnel

import "time"

// LoopOptions are the settings that the tunnels of a Loop share.
type LoopOptions struct {
	// Now is the coarse clock in milliseconds.
	Now func() int64
	// Idle is how long a tunnel may move nothing, and Untaken how long an end may leave what it is sent untaken.
	Idle, Untaken time.Duration
	// Panicked is called by the deferred function after a panic, which ends the tunnel in which it occurred.
	Panicked func(v any)
}

// keepAliveAfter is how long a tunnel must have moved nothing before TCP keep-alive to its backend is enabled.
const keepAliveAfter = time.Second

// Handler handles the events of a Pair. Its methods are called with the Loop locked, and must not wait.
type Handler interface {
	// Hello is called after AwaitHello with everything that the client has sent so far, again each time more arrives.
	// When that is enough, it must call Dial, GiveUp or Fail.
	Hello(b []byte)
	// Dialled is called when the connection that Dial has begun is made, or has failed. After a failure it must call
	// Dial or Fail.
	Dialled(err error)
	// Ended is called last, when both sockets are closed.
	Ended(End)
}
