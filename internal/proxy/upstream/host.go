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

// Backends that are external hostnames have the addresses of the host as endpoints, as DNS has them.

// externalHost is a host outside of the cluster; it is not changed but for stop and warned.
type externalHost struct {
	name            string
	port            uint16
	allowed, denied []netip.Prefix
	lookup          resolve.Lookup
	// stop ends the watch; guarded by Set.watching.
	stop func()
	// warned is when it was logged that the host has addresses that are refused; the Resolver's goroutine's.
	warned time.Time
}

// warnEach is how often that is logged of a host at most: whoever answers for it may have other such addresses each time.
const warnEach = 10 * time.Minute

// parseHost reads the host of a Backend, nil where it is none.
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
				return nil, fmt.Errorf("upstream: Backend %s: external_hostname has %q, which is no range of addresses: give one such as 192.0.2.0/24", b.Key, text)
			}
			*list.to = append(*list.to, p.Masked())
		}
	}
	return h, nil
}

// defaultRefresh is how often a host is asked for whose TTL does not count.
const defaultRefresh = 30 * time.Second

// lookupOf is how a policy has hosts asked for.
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

// same reports whether both have the same addresses, however they are asked for.
func (h *externalHost) same(o *externalHost) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.name == o.name && h.port == o.port && slices.Equal(h.allowed, o.allowed) && slices.Equal(h.denied, o.denied)
}

// refuses says why nothing is sent to an address that the host has, or "".
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

// resolving is a host that DNS was not heard of yet.
type resolving struct {
	answered chan struct{}
	until    time.Time // when requests do not wait any more
}

// resolveTimeout is how long the first requests to a host wait for its addresses.
const resolveTimeout = 5 * time.Second

// Resolving reports whether the backend is a host about which DNS was not heard yet.
func (b *Backend) Resolving() bool {
	if b.base != nil {
		b = b.base
	}
	return b.resolving.Load() != nil
}

// AwaitHost waits for the first answer of DNS, if there was none yet, and reports whether there is a point in another look at the endpoints. It is for who has found none
// after Resolving was true: the answer may have come between. The wait ends with ctx, by the deadline (zero: none), and when the first requests to the host have waited for resolveTimeout.
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

// watchChanges are hosts that are to be watched from now on, and those that are not any more.
type watchChanges struct {
	begin []watchedHost
	end   []*externalHost
}

type watchedHost struct {
	*Backend
	host *externalHost
}

// setHost has the backend's endpoints be the addresses of a host, nil for those that Endpoints say, and returns those that are gone; Set.mu is held.
func (b *Backend) setHost(h *externalHost, changes *watchChanges) (gone []*Endpoint) {
	same := b.host.same(h)
	if same && (h == nil || b.host.lookup == h.lookup) {
		return nil
	}
	b.endHost(changes)
	if !same {
		gone = b.replace(nil) // what was good for another name, or by other rules, may not be good now; requests wait for the answer
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

// endHost ends what setHost began; the endpoints stay. Set.mu is held.
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

// watch carries changes out; Set.mu is not held, since the Resolver's goroutines take it.
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

// resolved puts an answer of DNS in force.
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
