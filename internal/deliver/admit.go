package deliver

import (
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// The delivery port can be reached by all pods of the cluster, so the cost of a peer without an identity is limited.
const (
	// maxPeers is the maximum number of connections from one address: behind NAT, pods of many nodes may share one.
	maxPeers = 128
	// maxStrangers is the maximum number of connections without an identity from one address, and maxAllStrangers from all. Beyond
	// the latter, the oldest one of the address with most of them is closed, so that an address with few can connect.
	maxStrangers, maxAllStrangers = 32, 512
	// introduction is how long a connection may take to present an identity.
	introduction = 10 * time.Second
)

// admission limits the connections to a server.
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

// address is the state of a remote address.
type address struct {
	open      int
	strangers []*admitted // those without an identity, oldest first
}

// admitted is an accepted connection.
type admitted struct {
	net.Conn
	in       *admission
	host     string
	stranger bool // has not presented an identity; guarded by admission.mu
	timer    *time.Timer
	once     sync.Once
}

// Admit limits the connections of a listener: of each address, and in total of those without an identity, which they must present
// within 10 s. The server must be one on which Serve was called.
func (r *Remote) Admit(l net.Listener) net.Listener { return r.admit(l, introduction) }

func (r *Remote) admit(l net.Listener, patience time.Duration) net.Listener {
	a := &admission{Listener: l, log: r.o.Logger, refusals: &r.refusals, patience: patience,
		addresses: map[string]*address{}, byPeer: map[string]*admitted{}}
	r.admission.Store(a)
	return a
}

// Accept returns the next connection that is within the limits.
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

// take accepts a connection, or returns nil; evicted is another one that must be closed for it.
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

// oldest returns the oldest connection without an identity of the address with most of them; the caller must hold mu.
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

// known removes a connection from those without an identity; the caller must hold mu.
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

// introduced is called when the peer of a connection has presented an identity.
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

// joins limits how often a pod may begin a stream; the zero value is ready.
type joins struct{ of map[podKey]allowance }

type podKey struct{ gateway, pod string }

// take reports whether the pod may begin another stream.
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

// allowance limits the answers of a stream, and the streams of a pod, by ackRate and ackBurst; the zero value has the whole burst.
type allowance struct {
	full time.Time // when the whole burst is available again
}

// take reports whether one more is allowed.
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
