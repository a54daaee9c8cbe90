package tunnel

import "time"

// LoopOptions are what the tunnels of a Loop have in common.
type LoopOptions struct {
	// Now is the coarse clock in milliseconds.
	Now func() int64
	// Idle is how long nothing may move through a tunnel, and Untaken how long an end may leave what it is sent untaken.
	Idle, Untaken time.Duration
	// Panicked is told of a panic, by the deferred function. It ends the tunnel that it happened in.
	Panicked func(v any)
}

// restAfter is how long nothing must have moved through a tunnel before the system is asked to look after its backend.
const restAfter = time.Second

// Handler is told of what becomes of a Pair. Its methods are called with the Loop locked, and must not wait.
type Handler interface {
	// Hello is called in the state that AwaitHello begins, with what the client has sent so far, and more each time. It leads to Dial, GiveUp or Fail
	// where that is enough.
	Hello(b []byte)
	// Dialled is called when the connection that Dial has begun is made, or has failed. Dial follows a failure, or Fail.
	Dialled(err error)
	// Ended is called last, when both sockets are closed.
	Ended(End)
}
