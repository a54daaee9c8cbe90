package deliver_test

import (
	"slices"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestZones: a proxy is told its zone with what it is sent first, and where that is known later, without a change of its configuration.
func TestZones(t *testing.T) {
	c := newRemote(t)
	c.configure(listener("n/gw"), route("r", "n/gw", "/one"))
	c.SetZones("n", "gw", map[string]string{"pod-0": "a"})
	c.Lead("first", &deliver.Withheld{})
	first, late := c.connect(t, "n/gw", "pod-0"), c.connect(t, "n/gw", "pod-1")
	testkit.Eventually(t, "both are configured", func() bool { return c.acked("n/gw", "pod-0") && c.acked("n/gw", "pod-1") })
	if first.zones() != "a" || late.zones() != "" {
		t.Errorf("zones: %q and %q", first.zones(), late.zones())
	}
	c.SetZones("n", "gw", map[string]string{"pod-0": "a", "pod-1": "b"})
	testkit.Eventually(t, "the second one is told", func() bool { return late.zones() == "b" })
	testkit.Eventually(t, "it has applied it", func() bool { return slices.Equal(late.changes(), []int{2, 0}) })
	// What is not known any more says nothing: a pod is where it was.
	c.SetZones("n", "gw", nil)
	c.configure(route("s", "n/gw", "/two"))
	testkit.Eventually(t, "what is new is served", func() bool { return c.acked("n/gw", "pod-0") && c.acked("n/gw", "pod-1") })
	// A controller that does not know it does not unset it, and one that knows another one says so.
	c.Standby()
	c.Lead("second", &deliver.Withheld{})
	testkit.Eventually(t, "the next epoch is served", func() bool { return c.acked("n/gw", "pod-0") && c.acked("n/gw", "pod-1") })
	if first.zones() != "a" || late.zones() != "b" {
		t.Errorf("zones: %q and %q", first.zones(), late.zones())
	}
	c.SetZones("n", "gw", map[string]string{"pod-0": "c", "pod-1": "b"})
	testkit.Eventually(t, "the label of the node has changed", func() bool { return first.zones() == "a c" })
	if late.zones() != "b" {
		t.Errorf("zones: %q", late.zones())
	}
}

// TestZoneOfPodToCome: zones may be known before pods, and outlast the streams of these.
func TestZoneOfPodToCome(t *testing.T) {
	c := newRemote(t)
	c.SetZones("n", "gw", map[string]string{"pod-0": "a"})
	c.configure(listener("n/gw"))
	c.SetPods("n", "gw", map[string]string{"pod-0": "one"})
	c.Lead("first", &deliver.Withheld{})
	for range 2 {
		p := c.connect(t, "n/gw", "pod-0@one")
		testkit.Eventually(t, "it is told", func() bool { return p.zones() == "a" })
		p.stop()
	}
}

// TestZoneWaits: a proxy that is at work is told afterwards, and one whose configuration is withheld with what it is sent then.
func TestZoneWaits(t *testing.T) {
	c := newRemote(t)
	c.configure(listener("n/gw"))
	c.Lead("first", &deliver.Withheld{})
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "pod-0"))
	send := func(m *wire.FromProxy) {
		t.Helper()
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}})
	receive := func() *wire.ToProxy {
		t.Helper()
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	generation := func() (*wire.Begin, int) {
		t.Helper()
		begin, resources := receive().GetBegin(), 0
		if begin == nil {
			t.Fatal("a generation does not begin with a Begin")
		}
		for {
			m := receive()
			if m.GetCommit() != nil {
				return begin, resources
			}
			resources += len(m.GetChunk().GetUpserts())
		}
	}
	acknowledge := func(b *wire.Begin) {
		t.Helper()
		send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: &wire.Ack{Epoch: b.Epoch, Generation: b.Generation}}})
	}
	first, n := generation()
	if first.Zone != "" || !first.Full || n != 1 {
		t.Fatalf("%v with %d resources", first, n)
	}
	c.SetZones("n", "gw", map[string]string{"pod-0": "a"}) // it has not answered yet
	acknowledge(first)
	second, n := generation()
	if second.Zone != "a" || second.Full || second.Generation != first.Generation || n != 0 {
		t.Fatalf("%v with %d resources", second, n)
	}
	acknowledge(second)
	withheld := deliver.Withheld{Unknown: map[string]bool{"n/gw": true}}
	c.Apply(&deliver.Change{Config: &config.Update{Generation: 2, Upserts: []*config.Resource{route("r", "n/gw", "/one")}}, Withheld: withheld})
	c.SetZones("n", "gw", map[string]string{"pod-0": "b"})
	c.Apply(&deliver.Change{Config: &config.Update{}})
	third, n := generation()
	if third.Zone != "b" || third.Generation != 2 || n != 1 {
		t.Fatalf("%v with %d resources", third, n)
	}
}
