package deliver

import (
	"maps"
	"slices"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// heldStatus is the newest status of an object, which proxies do not serve yet.
type heldStatus struct {
	change translate.StatusChange
	// waits are the generations to be acknowledged, by Gateway.
	waits map[string]uint64
	// since is when the object's first status was held that is not published yet: newer ones replace it without
	// beginning the wait anew.
	since time.Time
}

// hold keeps a status until it is served, or frees it at once. It replaces an older one of the object.
func (r *Remote) hold(c translate.StatusChange, now time.Time) {
	h := &heldStatus{change: c, waits: map[string]uint64{}, since: now}
	if old := r.held[c.Object]; old != nil {
		if !r.unlisted(&c) { // else the proxies are not known until now
			h.since = old.since
		}
		r.unhold(old)
	}
	for _, name := range concerned(&c) {
		g := r.gateways[name]
		if g == nil || !r.ours(g) {
			continue
		}
		if generation := r.parts.Part(name).Generation(); !g.serves(generation) || !r.open(g, &c) {
			h.waits[name] = generation
			g.holding[c.Object] = struct{}{}
		}
	}
	if len(h.waits) == 0 {
		r.free = append(r.free, c)
		return
	}
	r.held[c.Object] = h
}

func (r *Remote) unhold(h *heldStatus) {
	for name := range h.waits {
		if g := r.gateways[name]; g != nil {
			delete(g.holding, h.change.Object)
		}
	}
	delete(r.held, h.change.Object)
}

// release frees what waited for this Gateway alone and is served by now.
func (r *Remote) release(g *gateway) {
	for object := range g.holding {
		h := r.held[object]
		if !g.serves(h.waits[g.name]) || !r.open(g, &h.change) {
			continue
		}
		delete(g.holding, object)
		if delete(h.waits, g.name); len(h.waits) == 0 {
			delete(r.held, object)
			r.free = append(r.free, h.change)
		}
	}
}

// releaseOld frees what was held for too long, though every proxy answers: changes came faster than the answers.
func (r *Remote) releaseOld(now time.Time) {
	for _, h := range r.held {
		if now.Sub(h.since) >= r.o.HoldLimit && !r.awaited(h) {
			r.unhold(h)
			r.free = append(r.free, h.change)
		}
	}
}

// unlisted reports whether a status is of a Gateway of which it is not known what runs for it.
func (r *Remote) unlisted(c *translate.StatusChange) bool {
	_, ok := c.Status.(*gwv1.GatewayStatus)
	return ok && r.o.Unlisted != nil && r.o.Unlisted(c.Object.Namespace)
}

// awaited reports whether a status waits for a Gateway of which not everything is known yet.
func (r *Remote) awaited(h *heldStatus) bool {
	if r.unlisted(&h.change) {
		return true
	}
	for name := range h.waits {
		g := r.gateways[name]
		if g == nil {
			continue
		}
		// What is new of a route at other Gateways waits for an undecided one no longer than for a proxy.
		if _, own := h.change.Status.(*gwv1.GatewayStatus); g.awaits || own && g.retains() {
			return true
		}
	}
	return false
}

// publish hands over what was freed, the latest of each object.
func (r *Remote) publish() {
	if len(r.free) == 0 {
		return
	}
	latest := make(map[translate.ObjectKey]translate.StatusChange, len(r.free))
	for _, c := range r.free {
		latest[c.Object] = c
	}
	r.free = nil
	if r.epoch == "" {
		return
	}
	r.o.Publish(slices.SortedFunc(maps.Values(latest), func(a, b translate.StatusChange) int { return a.Object.Compare(b.Object) }))
}

// concerned are the Gateways whose proxies must serve what a status says.
func concerned(c *translate.StatusChange) []string {
	var out []string
	parent := func(ref gwv1.ParentReference) {
		namespace := c.Object.Namespace
		if ref.Namespace != nil {
			namespace = string(*ref.Namespace)
		}
		if name := namespace + "/" + string(ref.Name); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	switch s := c.Status.(type) {
	case *gwv1.GatewayStatus:
		return []string{c.Object.Namespace + "/" + c.Object.Name}
	case *gwv1.RouteStatus:
		for i := range s.Parents {
			parent(s.Parents[i].ParentRef)
		}
	case *gwv1.PolicyStatus:
		for i := range s.Ancestors {
			parent(s.Ancestors[i].AncestorRef)
		}
	}
	return out
}
