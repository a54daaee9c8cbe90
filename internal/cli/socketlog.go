package cli

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
)

const (
	// maxSocketLines is the maximum number of lines about sockets for one change, maxSocketListeners that of listeners in a line:
	// there may be thousands.
	maxSocketLines     = 100
	maxSocketListeners = 8
)

// socketLog logs the sockets of listeners, one line for each socket that is opened or closed, or whose listeners change. It is safe
// for concurrent use.
type socketLog struct {
	log *slog.Logger

	mu    sync.Mutex
	began bool
	open  map[socketName]*openSocket
}

// socketName identifies a bound socket. TCP and UDP have separate ports.
type socketName struct {
	address string
	udp     bool
}

// openSocket describes the listeners on a socket.
type openSocket struct {
	protocols []string // sorted, distinct
	listeners []string // sorted
	routes    int
}

func (n socketName) compare(o socketName) int {
	if c := strings.Compare(n.address, o.address); c != 0 || n.udp == o.udp {
		return c
	}
	if n.udp {
		return 1
	}
	return -1
}

// begin logs the result of bound, and makes later calls of update log changes. It returns the number of listeners that serve.
func (l *socketLog) begin(bound func() []proxy.BoundListener) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = true
	now := bound() // with l.mu held, so that update handles what changes in the meantime
	l.differ(now)
	return len(now)
}

// update logs what has changed since the last call. It reports whether the last listener was closed.
func (l *socketLog) update(bound func() []proxy.BoundListener) (none bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began {
		return false
	}
	before := len(l.open)
	now := bound()
	l.differ(now)
	return before > 0 && len(now) == 0
}

// differ logs the differences to l.open, and replaces it. The caller must hold l.mu.
func (l *socketLog) differ(bound []proxy.BoundListener) {
	now := map[socketName]*openSocket{}
	for i := range bound { // sorted by key
		b := &bound[i]
		for _, address := range b.Addresses {
			n := socketName{address, b.Protocol == config.Protocol_PROTOCOL_UDP}
			s := now[n]
			if s == nil {
				s = &openSocket{}
				now[n] = s
			}
			s.routes += b.Routes
			s.listeners = append(s.listeners, b.Key)
			if p := strings.TrimPrefix(b.Protocol.String(), "PROTOCOL_"); !slices.Contains(s.protocols, p) {
				s.protocols = append(s.protocols, p)
			}
		}
	}
	lines := 0
	line := func(message string, args ...any) {
		if lines++; lines <= maxSocketLines {
			l.log.Info(message, args...)
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(l.open), socketName.compare) {
		if now[n] == nil {
			line("no longer listening", "address", n.address, "protocol", strings.Join(l.open[n].protocols, ","), "listeners", someListeners(l.open[n].listeners))
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(now), socketName.compare) {
		s, before := now[n], l.open[n]
		slices.Sort(s.protocols)
		switch {
		case before == nil:
			line("listening", "address", n.address, "protocol", strings.Join(s.protocols, ","), "listeners", someListeners(s.listeners), "routes", s.routes)
		case !slices.Equal(before.listeners, s.listeners):
			line("listening for other listeners", "address", n.address, "protocol", strings.Join(s.protocols, ","),
				"added", someListeners(absentFrom(before.listeners, s.listeners)), "removed", someListeners(absentFrom(s.listeners, before.listeners)))
		}
	}
	if more := lines - maxSocketLines; more > 0 {
		l.log.Info("more sockets were opened or closed, or have other listeners; moongate status shows all listeners", "sockets", more)
	}
	l.open = now
}

// absentFrom returns the elements of all that are not in others, which must be sorted.
func absentFrom(others, all []string) (rest []string) {
	for _, e := range all {
		if _, is := slices.BinarySearch(others, e); !is {
			rest = append(rest, e)
		}
	}
	return rest
}

// someListeners names some listeners, and the number of the others.
func someListeners(keys []string) string { return firstOf(keys, maxSocketListeners) }

// firstOf joins the first names, and adds the number of the others.
func firstOf(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ","), more)
	}
	return strings.Join(names, ",")
}
