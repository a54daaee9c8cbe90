// Package load sends requests to a gateway without a pause and remembers each one
// that failed, when and why. It exists because net/http's client repeats what fails
// on a connection that was kept, and so hides what a test of dropped requests looks
// for. It must never import anything but the standard library.
package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is how a client behaves.
type Kind string

const (
	// Kept sends GET requests on a connection that it keeps.
	Kept Kind = "kept"
	// Upload sends POST requests with a body, which nobody may repeat, on a connection that it keeps.
	Upload Kind = "upload"
	// Fresh opens a connection for each request.
	Fresh Kind = "fresh"
)

// Kinds are all of them.
var Kinds = []Kind{Kept, Upload, Fresh}

// Spec says whom to ask and how.
type Spec struct {
	// Address is host:port, an address rather than a name.
	Address string
	// Host is the Host field; empty is Address.
	Host string
	// Path is the request's target; empty is "/".
	Path string
	// Clients is the number of clients of each kind; a kind that is absent has none.
	Clients map[Kind]int
	// Pause is between two requests of a client; zero is none.
	Pause time.Duration
	// Timeout is for connecting, and again for the request; zero is 10 s.
	Timeout time.Duration
	// Status is the only one that is no failure; zero is 200.
	Status int
	// TLS is how connections are secured; nil is not at all.
	TLS *tls.Config
}

// Failure is one request that failed.
type Failure struct {
	At   time.Time // when it failed
	Took time.Duration
	// Phase is what was said to go on when the request began.
	Phase string
	Kind  Kind
	// Client tells the clients of a Load apart.
	Client int
	// Secure tells that the connection was over TLS.
	Secure bool
	// Reused tells that the connection had served a request before.
	Reused bool
	Reason string
}

// Report is what came of the requests of one kind, or of all.
type Report struct {
	Requests int
	// Repeated are the GET requests to which a kept connection gave no byte of an answer
	// before it was closed, and which succeeded on a new one. RFC 9112, section 9.3.1
	// lets servers close idle connections and has clients repeat; no user notices.
	Repeated int
	// Redialled are the requests whose connection was refused, and that succeeded on a later one.
	Redialled int
	Slowest   time.Duration
	Failures  []Failure
}

// String names each kind of failure once, with how often, first and last.
func (r Report) String() string {
	type group struct {
		count       int
		first, last time.Time
	}
	groups := map[string]*group{}
	for _, f := range r.Failures {
		key := fmt.Sprintf("%s: %s, reused %t: %s", f.Phase, f.Kind, f.Reused, f.Reason)
		g := groups[key]
		if g == nil {
			g = &group{first: f.At, last: f.At}
			groups[key] = g
		}
		g.count++
		if f.At.Before(g.first) {
			g.first = f.At
		}
		if f.At.After(g.last) {
			g.last = f.At
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d requests, %d failed, %d repeated, %d redialled, slowest %s",
		r.Requests, len(r.Failures), r.Repeated, r.Redialled, r.Slowest.Round(time.Millisecond))
	var lines []string
	for key, g := range groups {
		lines = append(lines, fmt.Sprintf("\n%s to %s, %d times: %s", g.first.Format("15:04:05.000"), g.last.Format("15:04:05.000"), g.count, key))
	}
	slices.Sort(lines)
	out.WriteString(strings.Join(lines, ""))
	return out.String()
}

// Load is a number of clients at work.
type Load struct {
	spec    Spec
	stop    context.CancelFunc
	clients []*client
	ended   sync.WaitGroup
	phase   atomic.Pointer[string]
	redial  atomic.Bool
	refused atomic.Int64 // connections
}

// Start starts the clients.
func Start(spec Spec) *Load {
	if spec.Host == "" {
		spec.Host = spec.Address
	}
	if spec.Path == "" {
		spec.Path = "/"
	}
	if spec.Timeout == 0 {
		spec.Timeout = 10 * time.Second
	}
	if spec.Status == 0 {
		spec.Status = 200
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Load{spec: spec, stop: stop}
	l.Phase("begin")
	for kind, count := range spec.Clients {
		for range count {
			c := &client{load: l, spec: &l.spec, kind: kind, number: len(l.clients)}
			l.clients = append(l.clients, c)
			l.ended.Go(func() { c.run(ctx) })
		}
	}
	return l
}

// Phase says what goes on from now on, for Failure.Phase.
func (l *Load) Phase(name string) { l.phase.Store(&name) }

// Redial sets whether from now on a connection that is refused is tried again for the time of
// Spec.Timeout, as balancers and careful clients do: nothing was sent on it.
func (l *Load) Redial(on bool) { l.redial.Store(on) }

// Clients is how many there are.
func (l *Load) Clients() int { return len(l.clients) }

// Await waits until each client has ended as many requests from now on, whether
// they failed or not.
func (l *Load) Await(ctx context.Context, requests int) error {
	var marks []int
	for _, c := range l.clients {
		marks = append(marks, c.snapshot().Requests+requests)
	}
	for i, c := range l.clients {
		for c.snapshot().Requests < marks[i] {
			select {
			case <-ctx.Done():
				return fmt.Errorf("a client of kind %s makes no progress: %w", c.kind, ctx.Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

// Stop lets every request that is under way end, and says what came of all.
func (l *Load) Stop() Report {
	l.stop()
	l.ended.Wait()
	var all Report
	for _, c := range l.clients {
		one := c.snapshot()
		all.Requests += one.Requests
		all.Repeated += one.Repeated
		all.Redialled += one.Redialled
		all.Slowest = max(all.Slowest, one.Slowest)
		all.Failures = append(all.Failures, one.Failures...)
	}
	slices.SortFunc(all.Failures, func(a, b Failure) int { return a.At.Compare(b.At) })
	return all
}
