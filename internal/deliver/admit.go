package deliver

import (
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// Everybody in the cluster can reach the delivery port, so what a peer costs before it has shown an identity is bounded.
const (
	// maxPeers bounds the connections of one address: many nodes' pods may come from one behind a translated network.
	maxPeers = 128
	// maxStrangers bounds the connections of one address that have not shown an identity, and maxAllStrangers those of all.
	// Beyond the latter the oldest of the address that has most is closed, so that one that has few gets in.
	maxStrangers, maxAllStrangers = 32, 512
	// introduction is how long a connection may take to show an identity.
	introduction = 10 * time.Second
)

// admission bounds the connections to a server.
type admission struct {
	net.Listener
	log      *slog.Logger
	refusals *refusals
	patience time.Duration

	mu        sync.Mutex
	addresses map[string]*address
	strangers int
	byPeer    map[string]*admitted // by remote address with port
}

// address is where connections come from.
type address struct {
	open      int
	strangers []*admitted // oldest first
}

// admitted is a connection that was let in.
type admitted struct {
	net.Conn
	in       *admission
	host     string
	stranger bool // has not shown an identity; guarded by admission.mu
	timer    *time.Timer
	once     sync.Once
}

// Admit bounds the connections of a listener: of each address, and in total of those that have not shown an identity
// yet, which they must within 10 s. The server must be one that Serve registers at.
func (r *Remote) Admit(l net.Listener) net.Listener { return r.admit(l, introduction) }

func (r *Remote) admit(l net.Listener, patience time.Duration) net.Listener {
	a := &admission{Listener: l, log: r.o.Logger, refusals: &r.refusals, patience: patience,
		addresses: map[string]*address{}, byPeer: map[string]*admitted{}}
	r.admission.Store(a)
	return a
}

// Accept returns the next connection that may come in.
func (a *admission) Accept() (net.Conn, error) {
	for {
		c, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, evicted := a.take(c)
		if evicted != nil {
			evicted.Close()
		}
		if admitted != nil {
			return admitted, nil
		}
		c.Close()
	}
}

// take lets a connection in, or answers nil; evicted is to be closed for it.
func (a *admission) take(conn net.Conn) (in, evicted *admitted) {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host = conn.RemoteAddr().String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	from := a.addresses[host]
	if from == nil {
		from = &address{}
		a.addresses[host] = from
	}
	if from.open >= maxPeers || len(from.strangers) >= maxStrangers {
		if a.refusals.news(host, codes.ResourceExhausted, time.Now()) {
			a.log.Warn("an address has too many connections to the delivery port; further ones are closed", "from", host, "connections", from.open, "without-identity", len(from.strangers))
		}
		return nil, nil
	}
	if a.strangers >= maxAllStrangers {
		if evicted = a.oldest(); evicted != nil {
			a.known(evicted)
		}
	}
	in = &admitted{Conn: conn, in: a, host: host, stranger: true}
	from.open++
	from.strangers = append(from.strangers, in)
	a.strangers++
	a.byPeer[conn.RemoteAddr().String()] = in
	in.timer = time.AfterFunc(a.patience, func() {
		a.mu.Lock()
		stranger := in.stranger
		a.mu.Unlock()
		if stranger {
			in.Close()
		}
	})
	return in, evicted
}

// oldest is the oldest connection without an identity of the address that has most of them; mu is held.
func (a *admission) oldest() *admitted {
	var most *address
	for _, from := range a.addresses {
		if len(from.strangers) > 0 && (most == nil || len(from.strangers) > len(most.strangers)) {
			most = from
		}
	}
	if most == nil {
		return nil
	}
	return most.strangers[0]
}

// known takes a connection from those without an identity; mu is held.
func (a *admission) known(c *admitted) {
	if !c.stranger {
		return
	}
	c.stranger = false
	a.strangers--
	from := a.addresses[c.host]
	for i, s := range from.strangers {
		if s == c {
			from.strangers = append(from.strangers[:i:i], from.strangers[i+1:]...)
			break
		}
	}
}

// introduced is called when the peer of a connection has shown an identity.
func (a *admission) introduced(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.byPeer[peer]; c != nil {
		a.known(c)
	}
}

func (c *admitted) Close() error {
	c.once.Do(func() {
		a := c.in
		a.mu.Lock()
		defer a.mu.Unlock()
		a.known(c)
		c.timer.Stop()
		from := a.addresses[c.host]
		if from.open--; from.open == 0 {
			delete(a.addresses, c.host)
		}
		if peer := c.RemoteAddr().String(); a.byPeer[peer] == c {
			delete(a.byPeer, peer)
		}
	})
	return c.Conn.Close()
}

// joins bounds how often a pod may begin a stream, in the place of another one or not; the zero value is ready.
type joins struct{ of map[podKey]allowance }

type podKey struct{ gateway, pod string }

// take reports whether the pod may begin one more.
func (j *joins) take(k podKey, now time.Time) bool {
	maps.DeleteFunc(j.of, func(_ podKey, a allowance) bool { return !a.full.After(now) })
	if j.of == nil {
		j.of = map[podKey]allowance{}
	}
	a := j.of[k]
	ok := a.take(now)
	j.of[k] = a
	return ok
}

// allowance bounds the answers of a stream, and the streams of a pod, by ackRate and ackBurst; the zero value has the whole burst.
type allowance struct {
	full time.Time // when the whole burst is there again
}

// take reports whether there may be one more.
func (a *allowance) take(now time.Time) bool {
	const each = time.Second / ackRate
	if a.full.Before(now) {
		a.full = now
	}
	if a.full.Sub(now) > (ackBurst-1)*each {
		return false
	}
	a.full = a.full.Add(each)
	return true
}
