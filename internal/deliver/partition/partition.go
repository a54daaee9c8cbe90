// Package partition splits a configuration by Gateway: a part contains the Gateway's listeners, ticket keys and rate limit service,
// the routes attached to them, and what these refer to, and knows what has changed since any generation. It exists so that a proxy
// gets only its own configuration, at a cost that depends on what has changed. If the same proxies serve all Gateways of a class,
// there is a part for these too; each of the Gateways keeps its own, for its own proxies that have not ended yet.
//
// It is pure: no lock, no clock, no I/O. It must import nothing of this module but config.
package partition

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// Partition contains a whole configuration and its parts. It is not safe for concurrent use.
type Partition struct {
	generation uint64
	// tombstones is the maximum number of removals that each part remembers.
	tombstones int
	resources  map[config.ID]*config.Resource
	parts      map[string]*Part
	// homes are the parts that contain a root, see change.roots.
	homes map[config.ID][]*Part
	// attached are the routes that name a listener, whether it exists or not.
	attached map[string]map[config.ID]struct{}
	// users counts, by part, the references to a Resource, whether that exists or not: few parts for each of thousands of Resources.
	users  map[config.ID][]usage
	walker walker
}

// New returns an empty Partition.
func New() *Partition {
	return &Partition{
		tombstones: maxTombstones,
		resources:  map[config.ID]*config.Resource{},
		parts:      map[string]*Part{},
		homes:      map[config.ID][]*Part{},
		attached:   map[string]map[config.ID]struct{}{},
		users:      map[config.ID][]usage{},
		walker:     walker{plans: map[protoreflect.FullName]*plan{}},
	}
}

// usage is how often the Resources of a part refer to one Resource.
type usage struct {
	part       *Part
	references int
}

// usageOf returns the index of a part, or -1.
func usageOf(users []usage, part *Part) int {
	return slices.IndexFunc(users, func(u usage) bool { return u.part == part })
}

// Generation returns that of the last Update.
func (p *Partition) Generation() uint64 { return p.generation }

// Part returns what the proxies of a Gateway ("<namespace>/<name>"), or those of a class, serve; it is empty if the Gateway is not
// known.
func (p *Partition) Part(gateway string) *Part {
	part := p.parts[gateway]
	if part == nil {
		part = newPart(gateway, p.generation, p.tombstones)
		p.parts[gateway] = part
	}
	return part
}

// Has reports whether the configuration contains anything for the Gateway.
func (p *Partition) Has(gateway string) bool {
	part := p.parts[gateway]
	return part != nil && len(part.live) > 0
}

// Forget drops the part of a Gateway that is empty.
func (p *Partition) Forget(gateway string) {
	if !p.Has(gateway) {
		delete(p.parts, gateway)
	}
}

// Apply applies one generation and returns the Gateways whose parts have changed, sorted.
func (p *Partition) Apply(u *config.Update) []string {
	c := &change{p: p, before: p.generation, roots: map[config.ID]struct{}{}, leaves: map[config.ID]struct{}{}, touched: map[string]struct{}{}}
	p.generation = u.Generation
	for _, r := range u.Upserts {
		c.take(r.ID(), r)
	}
	for _, id := range u.Removals {
		c.take(id, nil)
	}
	for id := range c.roots {
		c.place(id, p.project(id))
	}
	for id := range c.leaves {
		for _, u := range p.users[id] {
			if r := p.resources[id]; r != nil {
				c.put(u.part, id, r)
			} else {
				c.drop(u.part, id)
			}
		}
	}
	return slices.Sorted(maps.Keys(c.touched))
}

// project returns the versions of a root (see change.roots) for each Gateway that it concerns.
func (p *Partition) project(id config.ID) map[string]*config.Resource {
	r := p.resources[id]
	switch kind := r.GetKind().(type) {
	case *config.Resource_Listener:
		return within(r, kind.Listener.Gateway, kind.Listener.Merged)
	case *config.Resource_Route, *config.Resource_L4Route:
		return p.projectRoute(r)
	case *config.Resource_TicketKeys:
		return within(r, kind.TicketKeys.Key, kind.TicketKeys.Merged)
	case *config.Resource_RateLimitService:
		return within(r, kind.RateLimitService.Key, kind.RateLimitService.Merged)
	}
	return nil
}

// within returns the versions of a Gateway's Resource by part: that of the Gateway, and, unless merged is "", that of the Gateways
// that proxies serve together.
func within(r *config.Resource, gateway, merged string) map[string]*config.Resource {
	if merged == "" {
		return map[string]*config.Resource{gateway: r}
	}
	return map[string]*config.Resource{gateway: r, merged: r}
}

func (p *Partition) projectRoute(r *config.Resource) map[string]*config.Resource {
	byGateway := map[string][]*config.Attachment{}
	for _, a := range r.Attachments() {
		l := p.resources[config.ID{Kind: config.KindListener, Key: a.Listener}].GetListener()
		if l != nil {
			byGateway[l.Gateway] = append(byGateway[l.Gateway], a)
			if l.Merged != "" {
				byGateway[l.Merged] = append(byGateway[l.Merged], a)
			}
		}
	}
	out := make(map[string]*config.Resource, len(byGateway))
	for gateway, attachments := range byGateway {
		if len(attachments) == len(r.Attachments()) {
			out[gateway] = r
			continue
		}
		switch k := r.Kind.(type) {
		case *config.Resource_Route:
			projected := shallow(k.Route)
			projected.Attachments = attachments
			out[gateway] = &config.Resource{Kind: &config.Resource_Route{Route: projected}}
		case *config.Resource_L4Route:
			projected := shallow(k.L4Route)
			projected.Attachments = attachments
			out[gateway] = &config.Resource{Kind: &config.Resource_L4Route{L4Route: projected}}
		}
	}
	return out
}

// shallow copies a route's fields, and shares their values.
func shallow[M proto.Message](route M) M {
	out := route.ProtoReflect().New()
	route.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.Set(f, v)
		return true
	})
	return out.Interface().(M)
}

// change is the state of one Apply.
type change struct {
	p       *Partition
	before  uint64                 // the previous generation
	roots   map[config.ID]struct{} // Resources that are in a part by themselves and must be placed: listeners, routes, and those of which a Gateway has one
	leaves  map[config.ID]struct{} // Resources that others refer to
	touched map[string]struct{}
}

// take records a Resource, nil if it was removed, and what must be placed because of it.
func (c *change) take(id config.ID, r *config.Resource) {
	p := c.p
	old := p.resources[id]
	if r == nil {
		delete(p.resources, id)
	} else {
		p.resources[id] = r
	}
	switch id.Kind {
	case config.KindListener:
		c.roots[id] = struct{}{}
		if was, is := old.GetListener(), r.GetListener(); old == nil || r == nil || was.GetGateway() != is.GetGateway() || was.GetMerged() != is.GetMerged() {
			for route := range p.attached[id.Key] {
				c.roots[route] = struct{}{}
			}
		}
	case config.KindRoute, config.KindL4Route:
		c.roots[id] = struct{}{}
		p.detach(id, old)
		p.attach(id, r)
	case config.KindTicketKeys, config.KindRateLimitService:
		c.roots[id] = struct{}{}
	default:
		c.leaves[id] = struct{}{}
	}
}

func (p *Partition) detach(id config.ID, route *config.Resource) {
	for _, a := range route.Attachments() {
		delete(p.attached[a.Listener], id)
		if len(p.attached[a.Listener]) == 0 {
			delete(p.attached, a.Listener)
		}
	}
}

func (p *Partition) attach(id config.ID, route *config.Resource) {
	for _, a := range route.Attachments() {
		if p.attached[a.Listener] == nil {
			p.attached[a.Listener] = map[config.ID]struct{}{}
		}
		p.attached[a.Listener][id] = struct{}{}
	}
}

// place adds a root to the parts that it belongs to, and removes it from the others.
func (c *change) place(id config.ID, wanted map[string]*config.Resource) {
	for _, part := range c.p.homes[id] {
		if wanted[part.gateway] == nil {
			c.drop(part, id)
		}
	}
	delete(c.p.homes, id)
	for gateway, r := range wanted {
		part := c.p.parts[gateway]
		if part == nil {
			part = newPart(gateway, c.before, c.p.tombstones)
			c.p.parts[gateway] = part
		}
		c.put(part, id, r)
		c.p.homes[id] = append(c.p.homes[id], part)
	}
}

// put adds a Resource to a part, and with it all that it refers to.
func (c *change) put(part *Part, id config.ID, r *config.Resource) {
	old, there := part.get(id)
	if there && proto.Equal(old.resource, r) {
		return
	}
	refs := c.p.walker.references(r)
	part.put(id, r, refs, c.p.generation)
	c.touched[part.gateway] = struct{}{}
	for _, ref := range refs {
		c.retain(part, ref)
	}
	for _, ref := range old.refs {
		c.release(part, ref)
	}
}

func (c *change) drop(part *Part, id config.ID) {
	old, there := part.get(id)
	if !there {
		return
	}
	part.drop(id, c.p.generation)
	c.touched[part.gateway] = struct{}{}
	for _, ref := range old.refs {
		c.release(part, ref)
	}
}

func (c *change) retain(part *Part, id config.ID) {
	users := c.p.users[id]
	if i := usageOf(users, part); i >= 0 {
		users[i].references++
		return
	}
	c.p.users[id] = append(users, usage{part, 1})
	if r := c.p.resources[id]; r != nil {
		c.put(part, id, r)
	}
}

func (c *change) release(part *Part, id config.ID) {
	users := c.p.users[id]
	i := usageOf(users, part)
	if users[i].references--; users[i].references > 0 {
		return
	}
	if users = slices.Delete(users, i, i+1); len(users) > 0 {
		c.p.users[id] = users
	} else {
		delete(c.p.users, id)
	}
	c.drop(part, id)
}
