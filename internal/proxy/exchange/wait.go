package exchange

import "context"

// wait is a wait on behalf of the client. Its ctx is cancelled when the client leaves or a limit on the exchange's time
// expires; the sweeper checks meanwhile whether the client has left.
type wait struct {
	ctx    context.Context
	cancel context.CancelFunc
	watch  *Watch
}

// beginWait begins a wait. Its end or endNotForBackend must be called.
func (x *Exchange) beginWait() wait {
	ctx, cancel := context.WithCancel(context.Background())
	w := wait{ctx, cancel, x.Client.Watch}
	w.watch.begin(interrupterFunc(cancel))
	w.watch.waits(x.Client.Engine.Now())
	return w
}

// end ends the wait and reports whether the client has left.
func (w wait) end() (gone bool) {
	defer w.cancel()
	w.watch.waited()
	return w.watch.end()
}

// endNotForBackend is like end, for a wait that was not for a backend: see Watch.forget.
func (w wait) endNotForBackend() (gone bool) {
	w.watch.forget()
	return w.end()
}
