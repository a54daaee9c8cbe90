package reconcile

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// maxFetches is the number of objects that are read concurrently.
const maxFetches = 32

// fetches reads the Secrets that translation needs, concurrently with it: an API server that does not answer must delay neither an
// update of another Gateway nor the end of a leadership. The calls for one object do not overlap and are in order. It is safe for
// concurrent use.
type fetches struct {
	ctx     context.Context
	fetch   func(context.Context, []translate.SecretRequest) []metav1.Object // nil: nothing is fetched
	arrived func()                                                           // called after objects were read; calls do not overlap
	slots   chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	pending   map[kind.ObjectKey]*fetching
	done      []fetched
	notifying bool // arrived is being called, or is about to be
}

// fetching is the state of the calls for one object.
type fetching struct {
	needed  bool
	changed bool               // since the present call began
	stop    context.CancelFunc // of the present call
	read    bool               // it is in done
}

// fetched is the result of a read.
type fetched struct {
	key    kind.ObjectKey
	object metav1.Object // nil if it does not exist
	of     *fetching
}

func (f *fetches) start(ctx context.Context, fetch func(context.Context, []translate.SecretRequest) []metav1.Object, arrived func()) {
	f.ctx, f.fetch, f.arrived = ctx, fetch, arrived
	f.slots, f.pending = make(chan struct{}, maxFetches), map[kind.ObjectKey]*fetching{}
}

// request begins to read what is newly needed. It does not block.
func (f *fetches) request(requests []translate.SecretRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fetch == nil || f.ctx.Err() != nil {
		return
	}
	for _, r := range requests {
		if p := f.pending[r.Object]; p != nil && !p.read {
			p.needed, p.changed = r.Needed, true
			p.stop()
			continue
		}
		p := &fetching{needed: r.Needed}
		ctx := p.begin(f.ctx)
		f.pending[r.Object] = p
		f.running.Go(func() { f.run(ctx, r.Object, p) })
	}
}

func (p *fetching) begin(parent context.Context) (ctx context.Context) {
	p.changed = false
	ctx, p.stop = context.WithCancel(parent)
	return ctx
}

// run calls fetch until there is no newer request for the object.
func (f *fetches) run(ctx context.Context, key kind.ObjectKey, p *fetching) {
	for {
		f.mu.Lock()
		needed := p.needed
		f.mu.Unlock()
		object := f.call(ctx, translate.SecretRequest{Object: key, Needed: needed})
		f.mu.Lock()
		p.stop()
		if p.changed && f.ctx.Err() == nil {
			ctx = p.begin(f.ctx)
			f.mu.Unlock()
			continue
		}
		if !p.needed {
			delete(f.pending, key)
		} else {
			p.read = true
			f.done = append(f.done, fetched{key, object, p})
			if !f.notifying {
				f.notifying = true
				f.running.Go(f.notify) // run itself is still counted, so wait also waits for notify
			}
		}
		f.mu.Unlock()
		return
	}
}

// call calls fetch for one object. It returns the result, nil if there is none.
func (f *fetches) call(ctx context.Context, r translate.SecretRequest) metav1.Object {
	if r.Needed {
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		case <-ctx.Done():
			return nil
		}
	}
	for _, o := range f.fetch(ctx, []translate.SecretRequest{r}) {
		return o
	}
	return nil
}

// notify calls arrived until everything that was read has been taken. What arrives during a call is taken together.
func (f *fetches) notify() {
	for {
		f.mu.Lock()
		if len(f.done) == 0 || f.ctx.Err() != nil {
			f.notifying = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		f.arrived()
	}
}

// take returns what was read since the last call and is still needed.
func (f *fetches) take() (out []fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.done {
		if f.pending[x.key] == x.of {
			delete(f.pending, x.key)
			out = append(out, x)
		}
	}
	f.done = nil
	return out
}

// unknown returns the objects that are needed and have not been taken.
func (f *fetches) unknown() (out []kind.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, p := range f.pending {
		if p.needed {
			out = append(out, key)
		}
	}
	return out
}

// wait waits until every call has ended; ctx must have ended.
func (f *fetches) wait() {
	f.mu.Lock()
	//lint:ignore SA2001 calls begin under mu: those that have begun are counted, and no other begins
	f.mu.Unlock()
	f.running.Wait()
}
