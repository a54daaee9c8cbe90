package client

import (
	"errors"
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// generation is the content between a Begin and its Commit.
type generation struct {
	epoch    string
	number   uint64
	full     bool
	zone     string // "" if the controller does not know it
	upserts  map[config.ID]*config.Resource
	removals map[config.ID]struct{} // disjoint from upserts
	// unknown is set if there are Resources of kinds that this build does not know: the controller is newer.
	unknown bool
}

// assembler assembles generations. The zero value waits for a Begin.
type assembler struct {
	open *generation
}

// take adds a message and returns the generation that it completes, if any. After an error, a generation that was begun is
// discarded.
func (a *assembler) take(m *wire.ToProxy) (*generation, error) {
	g := a.open
	switch k := m.GetMessage().(type) {
	case *wire.ToProxy_Begin:
		a.open = nil
		if g != nil {
			return nil, fmt.Errorf("generation %d begins before the Commit of generation %d", k.Begin.GetGeneration(), g.number)
		}
		a.open = &generation{epoch: k.Begin.GetEpoch(), number: k.Begin.GetGeneration(), full: k.Begin.GetFull(), zone: k.Begin.GetZone(),
			upserts: map[config.ID]*config.Resource{}, removals: map[config.ID]struct{}{}}
		return nil, nil
	case *wire.ToProxy_Chunk:
		if g == nil {
			return nil, errors.New("a Chunk comes without a Begin")
		}
		if err := g.add(k.Chunk); err != nil {
			a.open = nil
			return nil, err
		}
		return nil, nil
	case *wire.ToProxy_Commit:
		a.open = nil
		switch {
		case g == nil:
			return nil, errors.New("a Commit comes without a Begin")
		case k.Commit.GetGeneration() != g.number:
			return nil, fmt.Errorf("the Commit is for generation %d, the Begin was for %d", k.Commit.GetGeneration(), g.number)
		}
		return g, nil
	}
	a.open = nil
	return nil, errors.New("a message is of a kind that this version does not know")
}

func (g *generation) add(c *wire.Chunk) error {
	for _, r := range c.GetUpserts() {
		if r.GetKind() == nil {
			g.unknown = true
			continue
		}
		id := r.ID()
		if _, there := g.removals[id]; there || id.Key == "" || g.upserts[id] != nil {
			return fmt.Errorf("generation %d names %s twice, or without a key", g.number, id)
		}
		g.upserts[id] = r
	}
	for _, gone := range c.GetRemovals() {
		if gone.GetKind() == 0 || gone.GetKind() > 255 { // this proxy cannot have such a Resource
			continue
		}
		id := config.ID{Kind: config.Kind(gone.GetKind()), Key: gone.GetKey()}
		if g.upserts[id] != nil {
			return fmt.Errorf("generation %d both has and removes %s", g.number, id)
		}
		g.removals[id] = struct{}{}
	}
	return nil
}
