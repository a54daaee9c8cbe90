package client

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestResources: in whatever way a Resource is held, it comes back whole, from the state file too, and another version takes its place.
func TestResources(t *testing.T) {
	versions := map[string][]*config.Resource{}
	for i := range uint32(3) {
		for _, r := range []*config.Resource{
			listener("l", i+1),
			{Kind: &config.Resource_Route{Route: &config.Route{Key: "r", CreatedUnixNano: int64(i)}}},
			{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b", Port: i}}},
			{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: "b", Endpoints: []*config.Endpoint{{Address: "10.0.0.1", Port: i}}}}},
			{Kind: &config.Resource_L4Route{L4Route: &config.L4Route{Key: "r", CreatedUnixNano: int64(i)}}},
		} {
			if i == 1 {
				testkit.AddField(t, r, config.FirstIgnorable)
			}
			versions[r.ID().String()] = append(versions[r.ID().String()], r)
		}
	}
	h := newHolding()
	h.epoch, h.generation = "e", 1
	for i := range 3 {
		for _, of := range versions {
			h.resources.set(of[i])
		}
		if h.resources.len() != len(versions) {
			t.Fatalf("%d resources are held, want %d", h.resources.len(), len(versions))
		}
		data, err := encoded(time.Now(), &h)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := decodeState(data, testGateway, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		listed := map[config.ID]*config.Resource{}
		for id, r := range h.resources.all() {
			listed[id] = decode(r)
		}
		for _, of := range versions {
			want := of[i]
			for way, got := range map[string]*config.Resource{"get": h.resources.get(want.ID()), "all": listed[want.ID()], "saved": saved.upserts[want.ID()]} {
				if !proto.Equal(got, want) {
					t.Errorf("version %d, %s: %v, want %v", i, way, got, want)
				}
			}
		}
	}
	for _, of := range versions {
		id := of[0].ID()
		if h.resources.remove(id); h.resources.get(id) != nil {
			t.Errorf("%s was removed, and is there", id)
		}
	}
	if h.resources.len() != 0 {
		t.Errorf("%d resources are left", h.resources.len())
	}
}
