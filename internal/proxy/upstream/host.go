package upstream

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/denial"
	"github.com/moongate-dev/moongate/internal/proxy/resolve"
)

// The endpoints of a backend that is an external hostname are the addresses that DNS has for the host.

// externalHost is a host outside the cluster. It is immutable except for stop and warned.
type externalHost struct {
	name            string
	port            uint16
	allowed, denied []netip.Prefix
	lookup          resolve.Lookup
	// stop ends the watch; guarded by Set.watching.
	stop func()
	// warned is when it was last logged that addresses of the host are refused. It belongs to the Resolver's goroutine.
	warned time.Time
}

// warnEach is the shortest time between two such log lines for a host, whose DNS server may return other refused
// addresses each time.
const warnEach = 10 * time.Minute

// parseHost compiles the host of a Backend. It returns nil if the backend is not an external hostname.
func parseHost(b *config.Backend) (*externalHost, error) {
	c := b.ExternalHostname
	if c == nil {
		return nil, nil
	}
	h := &externalHost{name: c.Name, port: uint16(b.Port), lookup: lookupOf(b.GetTraffic().GetConnections())}
	if c.Name == "" || b.Port == 0 || b.Port > 65535 {
		return nil, fmt.Errorf("upstream: Backend %s: external_hostname %q, port %d: give the name of a host and a port from 1 to 65535", b.Key, c.Name, b.Port)
	}
	for _, list := range []struct {
		from []string
		to   *[]netip.Prefix
	}{{c.Allowed, &h.allowed}, {c.Denied, &h.denied}} {
		for _, text := range list.from {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("upstream: Backend %s: external_hostname has %q, which is not an address range: give one such as 192.0.2.0/24", b.Key, text)
			}
			*list.to = append(*list.to, p.Masked())
		}
	}
	return h, nil
}

// defaultRefresh is how often a host is looked up if its TTL is ignored.
const defaultRefresh = 30 * time.Second

// lookupOf returns how a policy configures the lookups of hosts.
func lookupOf(c *config.BackendConnections) (l resolve.Lookup) {
	l.Family = map[config.LookupFamily]resolve.Family{
		config.LookupFamily_LOOKUP_FAMILY_IPV4: resolve.OnlyIPv4, config.LookupFamily_LOOKUP_FAMILY_IPV6: resolve.OnlyIPv6,
		config.LookupFamily_LOOKUP_FAMILY_IPV6_PREFERRED: resolve.PreferIPv6, config.LookupFamily_LOOKUP_FAMILY_IPV4_AND_IPV6: resolve.BothFamilies,
	}[c.GetDnsFamily()]
	if c.GetDnsIgnoreTtl() {
		l.Refresh = cmp.Or(time.Duration(c.GetDnsRefreshNanos()), defaultRefresh)
	}
	return l
}

// same reports whether both have the same addresses, however they are looked up.
func (h *externalHost) same(o *externalHost) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.name == o.name && h.port == o.port && slices.Equal(h.allowed, o.allowed) && slices.Equal(h.denied, o.denied)
}

// refuses returns why nothing is sent to an address of the host, or "".
func (h *externalHost) refuses(a netip.Addr) string {
	for _, p := range h.denied {
		if denial.Within(a, p) {
			return fmt.Sprintf("is in %s, which a GatewayClass denies or a Gateway has", p)
		}
	}
	why := denial.OfName(a)
	for _, p := range h.allowed {
		if why != "" && denial.Within(a, p) {
			return ""
		}
	}
	return why
}

// resolving is the state of a host without a DNS answer so far.
type resolving struct {
	answered chan struct{}
	until    time.Time // when requests stop waiting
}

// resolveTimeout is how long the first requests to a host wait for its addresses.
const resolveTimeout = 5 * time.Second

// Resolving reports whether the backend is a host without a DNS answer so far.
func (b *Backend) Resolving() bool {
	if b.base != nil {
		b = b.base
	}
	return b.resolving.Load() != nil
}

// AwaitHost waits for the first DNS answer, if there was none yet, and reports whether endpoints should be looked for
// again. It is to be called when no endpoint was found after Resolving returned true: the answer may have arrived in
// between. The wait ends with ctx, by deadline (the zero time means none), and when the first requests to the host have
// waited for resolveTimeout.
func (b *Backend) AwaitHost(ctx context.Context, deadline time.Time) bool {
	if b.base != nil {
		b = b.base
	}
	r := b.resolving.Load()
	if r == nil {
		return true
	}
	until := r.until
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-r.answered:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// watchChanges are the hosts whose watch is to begin, and those whose watch is to end.
type watchChanges struct {
	begin []watchedHost
	end   []*externalHost
}

type watchedHost struct {
	*Backend
	host *externalHost
}

// setHost makes the addresses of a host the backend's endpoints; nil means those of its Endpoints resource. It returns
// the endpoints that are gone. Set.mu must be held.
func (b *Backend) setHost(h *externalHost, changes *watchChanges) (gone []*Endpoint) {
	same := b.host.same(h)
	if same && (h == nil || b.host.lookup == h.lookup) {
		return nil
	}
	b.endHost(changes)
	if !same {
		gone = b.replace(nil) // addresses of another name, or accepted by other rules, may not be acceptable now; requests wait for the answer
	}
	if b.host = h; h == nil || b.set.closed || b.set.options.Resolver == nil {
		return gone
	}
	if len(b.list.Load().all) == 0 {
		b.resolving.Store(&resolving{make(chan struct{}), time.Now().Add(resolveTimeout)})
	}
	changes.begin = append(changes.begin, watchedHost{b, h})
	return gone
}

// endHost undoes setHost, but keeps the endpoints. Set.mu must be held.
func (b *Backend) endHost(changes *watchChanges) {
	if b.host == nil {
		return
	}
	changes.end = append(changes.end, b.host)
	b.host = nil
	if r := b.resolving.Swap(nil); r != nil {
		close(r.answered)
	}
}

// watch carries out changes. Set.mu must not be held, since the Resolver's goroutines take it.
func (s *Set) watch(changes *watchChanges) {
	if len(changes.begin)+len(changes.end) == 0 {
		return
	}
	s.watching.Lock()
	defer s.watching.Unlock()
	for _, w := range changes.begin {
		w.host.stop = s.options.Resolver.WatchBy(w.config.Load().GetNamespace(), w.host.name, w.host.lookup, func(a resolve.Answer) { s.resolved(w.Backend, w.host, a) })
	}
	for _, h := range changes.end {
		if h.stop != nil {
			h.stop()
		}
	}
}

// resolved publishes a DNS answer.
func (s *Set) resolved(b *Backend, h *externalHost, a resolve.Answer) {
	var next []parsedEndpoint
	var refused []string
	for _, address := range a.Addresses {
		if why := h.refuses(address); why != "" {
			refused = append(refused, address.String()+" "+why)
			continue
		}
		at := netip.AddrPortFrom(address, h.port)
		next = append(next, parsedEndpoint{address: at, sessionID: endpointSessionID(0, at)})
	}
	var gone []*Endpoint
	s.mu.Lock()
	current := b.host == h && !s.closed
	if current {
		gone = b.replace(next)
		if r := b.resolving.Swap(nil); r != nil {
			close(r.answered)
		}
	}
	s.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
	if now := time.Now(); current && len(refused) > 0 && now.Sub(h.warned) >= warnEach {
		h.warned = now
		s.options.Logger.Warn("a host has addresses that nothing is sent to", "backend", b.key, "host", h.name, "addresses", strings.Join(refused[:min(len(refused), 8)], "; "),
			"remedy", "name their range in spec.classOnly.allowedExternalAddresses of the GatewayClass's GatewayParameters, if they are meant")
	}
}
