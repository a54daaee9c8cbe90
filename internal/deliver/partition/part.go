package partition

import (
	"container/list"
	"maps"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
)

// maxTombstones is how many removals a part remembers: a proxy that has missed more gets a full generation.
const maxTombstones = 4096

// Part is the configuration of one Gateway, or of several that proxies serve together.
type Part struct {
	gateway    string
	generation uint64
	// floor is the oldest generation since which all removals are remembered.
	floor      uint64
	tombstones int
	live, dead map[config.ID]*list.Element
	// changes and removals contain *entry, the latest change last.
	changes, removals list.List
}

// entry is a Resource, or a removed one.
type entry struct {
	id         config.ID
	resource   *config.Resource // nil if it was removed
	refs       []config.ID
	generation uint64 // of the last change
}

// Delta is the difference between two generations. Its Resources are shared and must not be modified.
type Delta struct {
	Generation uint64 // the later one
	// Full is set if Upserts are everything, and Resources that are not among them must be removed.
	Full     bool
	Upserts  []*config.Resource // sorted by config.CompareID
	Removals []config.ID        // sorted by config.CompareID
}

func newPart(gateway string, generation uint64, tombstones int) *Part {
	return &Part{gateway: gateway, generation: generation, floor: generation, tombstones: tombstones,
		live: map[config.ID]*list.Element{}, dead: map[config.ID]*list.Element{}}
}

// Generation returns the generation that changed the part last.
func (p *Part) Generation() uint64 { return p.generation }

// Len returns the number of Resources.
func (p *Part) Len() int { return len(p.live) }

// Gateways returns those that have a listener in the part, sorted.
func (p *Part) Gateways() []string {
	found := map[string]struct{}{}
	for _, e := range p.live {
		if l := e.Value.(*entry).resource.GetListener(); l != nil {
			found[l.Gateway] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Holds reports whether a Resource is in the part.
func (p *Part) Holds(id config.ID) bool { return p.live[id] != nil }

// Since returns the Delta from a generation of this part to the present one; a full one if too much was removed in the meantime.
func (p *Part) Since(generation uint64) Delta {
	if generation < p.floor || generation > p.generation {
		return p.All()
	}
	d := Delta{Generation: p.generation}
	for e := p.changes.Back(); e != nil && e.Value.(*entry).generation > generation; e = e.Prev() {
		d.Upserts = append(d.Upserts, e.Value.(*entry).resource)
	}
	for e := p.removals.Back(); e != nil && e.Value.(*entry).generation > generation; e = e.Prev() {
		d.Removals = append(d.Removals, e.Value.(*entry).id)
	}
	d.sort()
	return d
}

// All returns a full Delta.
func (p *Part) All() Delta {
	d := Delta{Generation: p.generation, Full: true, Upserts: p.Unsorted()}
	d.sort()
	return d
}

// Unsorted returns the Resources of All, ordered by their last change: for callers that hold a lock and sort later.
func (p *Part) Unsorted() []*config.Resource {
	all := make([]*config.Resource, 0, len(p.live))
	for e := p.changes.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*entry).resource)
	}
	return all
}

func (d *Delta) sort() {
	slices.SortFunc(d.Upserts, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	slices.SortFunc(d.Removals, config.CompareID)
}

func (p *Part) get(id config.ID) (entry, bool) {
	e := p.live[id]
	if e == nil {
		return entry{}, false
	}
	return *e.Value.(*entry), true
}

func (p *Part) put(id config.ID, r *config.Resource, refs []config.ID, generation uint64) {
	p.generation = generation
	if e := p.dead[id]; e != nil {
		p.removals.Remove(e)
		delete(p.dead, id)
	}
	now := &entry{id, r, refs, generation}
	if e := p.live[id]; e != nil {
		e.Value = now
		p.changes.MoveToBack(e)
		return
	}
	p.live[id] = p.changes.PushBack(now)
}

func (p *Part) drop(id config.ID, generation uint64) {
	p.generation = generation
	p.changes.Remove(p.live[id])
	delete(p.live, id)
	p.dead[id] = p.removals.PushBack(&entry{id: id, generation: generation})
	if len(p.dead) > p.tombstones {
		oldest := p.removals.Remove(p.removals.Front()).(*entry)
		delete(p.dead, oldest.id)
		p.floor = oldest.generation
	}
}
