package reconcile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// statusGate holds statuses back until the proxies of their Gateways serve what the statuses report. It is guarded by Cluster.mu.
type statusGate struct {
	proxies proxies
	// open reports whether what runs for a Gateway corresponds to a status.
	open func(gateway string, c *translate.StatusChange) bool
	// unlisted reports whether a status is that of a Gateway, or of a ListenerSet of one, for which it is not known what runs.
	unlisted func(c *translate.StatusChange) bool
	limit    time.Duration // see ClusterOptions.HoldLimit

	held      map[kind.ObjectKey]*heldStatus
	byGateway map[string]map[kind.ObjectKey]struct{} // of held
	free      []translate.StatusChange               // those that no longer wait
}

// proxies is *deliver.Remote, or a substitute in tests.
type proxies interface {
	Generation(gateway string) (generation uint64, serving bool)
	Serves(gateway string, generation uint64) bool
	Withholds(gateway string) (awaits, retains bool)
}

// heldStatus is the newest status of an object, which proxies do not serve yet.
type heldStatus struct {
	change translate.StatusChange
	// waits are the generations that must be acknowledged, by Gateway.
	waits map[string]uint64
	// since is when the first unpublished status of the object was held: newer ones replace it without restarting the wait.
	since time.Time
}

func newStatusGate(p proxies, open func(string, *translate.StatusChange) bool, unlisted func(*translate.StatusChange) bool, limit time.Duration) statusGate {
	return statusGate{proxies: p, open: open, unlisted: unlisted, limit: limit,
		held:      map[kind.ObjectKey]*heldStatus{},
		byGateway: map[string]map[kind.ObjectKey]struct{}{},
	}
}

// add holds a status until it is served, or frees it at once. It replaces an older one of the object.
func (s *statusGate) add(c translate.StatusChange, now time.Time) {
	h := &heldStatus{change: c, waits: map[string]uint64{}, since: now}
	if old := s.held[c.Object]; old != nil {
		if !s.unlisted(&c) { // else the proxies are not known yet
			h.since = old.since
		}
		s.drop(old)
	}
	for _, name := range c.Gateways {
		generation, serving := s.proxies.Generation(name)
		if serving && (!s.proxies.Serves(name, generation) || !s.open(name, &c)) {
			h.waits[name] = generation
			if s.byGateway[name] == nil {
				s.byGateway[name] = map[kind.ObjectKey]struct{}{}
			}
			s.byGateway[name][c.Object] = struct{}{}
		}
	}
	if len(h.waits) == 0 {
		s.free = append(s.free, c)
		return
	}
	s.held[c.Object] = h
}

// drop removes a status that is held.
func (s *statusGate) drop(h *heldStatus) {
	for name := range h.waits {
		s.forget(name, h.change.Object)
	}
	delete(s.held, h.change.Object)
}

// forget records that an object's status no longer waits for a Gateway.
func (s *statusGate) forget(gateway string, object kind.ObjectKey) {
	delete(s.byGateway[gateway], object)
	if len(s.byGateway[gateway]) == 0 {
		delete(s.byGateway, gateway)
	}
}

// release frees the statuses that waited only for this Gateway and are served now.
func (s *statusGate) release(gateway string) {
	serves := map[uint64]bool{} // cached by generation: thousands of statuses wait for few generations, and release is called for each answer of each proxy
	for object := range s.byGateway[gateway] {
		h := s.held[object]
		generation := h.waits[gateway]
		served, known := serves[generation]
		if !known {
			served = s.proxies.Serves(gateway, generation)
			serves[generation] = served
		}
		if !served || !s.open(gateway, &h.change) {
			continue
		}
		s.forget(gateway, object)
		if delete(h.waits, gateway); len(h.waits) == 0 {
			delete(s.held, object)
			s.free = append(s.free, h.change)
		}
	}
}

// restart restarts the wait of the statuses that are held for a Gateway.
func (s *statusGate) restart(gateway string, now time.Time) {
	for object := range s.byGateway[gateway] {
		s.held[object].since = now
	}
}

// releaseOld frees statuses that were held for too long although every proxy answers: changes came faster than the answers.
func (s *statusGate) releaseOld(now time.Time) {
	for _, h := range s.held {
		if now.Sub(h.since) >= s.limit && !s.awaited(h) {
			s.drop(h)
			s.free = append(s.free, h.change)
		}
	}
}

// awaited reports whether a status waits for a Gateway of which not everything is known yet.
func (s *statusGate) awaited(h *heldStatus) bool {
	if s.unlisted(&h.change) {
		return true
	}
	for name := range h.waits {
		awaits, retains := s.proxies.Withholds(name)
		// What a route's status reports about other Gateways does not wait for an undecided one for longer than for a proxy.
		if _, own := gatewayConditions(&h.change); awaits || own && retains {
			return true
		}
	}
	return false
}

// take returns what was freed, the latest of each object, sorted.
func (s *statusGate) take() []translate.StatusChange {
	if len(s.free) == 0 {
		return nil
	}
	latest := make(map[kind.ObjectKey]translate.StatusChange, len(s.free))
	for _, c := range s.free {
		latest[c.Object] = c
	}
	s.free = nil
	return slices.SortedFunc(maps.Values(latest), func(a, b translate.StatusChange) int { return a.Object.Compare(b.Object) })
}

// clear drops all statuses that are held.
func (s *statusGate) clear() {
	clear(s.held)
	clear(s.byGateway)
}

// len returns the number of statuses that are held.
func (s *statusGate) len() int { return len(s.held) }

// gatewayConditions returns the conditions of a status that reports what a Gateway serves: its own, or that of a ListenerSet, whose
// listeners belong to the Gateway. For other statuses ok is false: a route may wait for several Gateways, and none of them delays
// what the status reports about the others.
func gatewayConditions(s *translate.StatusChange) (conditions []metav1.Condition, ok bool) {
	switch status := s.Status.(type) {
	case *gwv1.GatewayStatus:
		return status.Conditions, true
	case *gwv1.ListenerSetStatus:
		return status.Conditions, true
	case *gwx.ListenerSetStatus:
		return status.Conditions, true
	}
	return nil, false
}

// unlisted reports whether a status is that of a Gateway, or of a ListenerSet of one, for which it is not known what runs.
func (c *Cluster) unlisted(s *translate.StatusChange) bool {
	if _, ok := gatewayConditions(s); !ok || c.o.Unlisted == nil {
		return false
	}
	return slices.ContainsFunc(s.Gateways, func(gateway string) bool {
		namespace, _, _ := strings.Cut(gateway, "/")
		return c.o.Unlisted(namespace)
	})
}

// open reports whether clients can reach what a status reports as programmed: the cluster has applied the ProxySpec that corresponds
// to the status. Until then the old infrastructure runs. The caller must hold c.mu.
func (c *Cluster) open(gateway string, change *translate.StatusChange) bool {
	if c.unlisted(change) {
		return false
	}
	conditions, ok := gatewayConditions(change)
	g := c.gateways[gateway]
	if !ok || g == nil {
		return true
	}
	p, i := g.spec, g.infrastructure
	// The condition has the same name for both kinds.
	if p == nil || p.Paused || i == nil || !meta.IsStatusConditionTrue(conditions, string(gwv1.GatewayConditionProgrammed)) {
		return true
	}
	if i.Class != "" && i.Class != p.Class {
		return false
	}
	missing := func(port translate.ProxyPort) bool { return !slices.Contains(i.Ports, port) }
	return i.Ports == nil || !slices.ContainsFunc(p.Ports, missing)
}
