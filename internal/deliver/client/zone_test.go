package client

import (
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestZoneKept: a proxy that starts again knows its zone before the controller is there, which need not repeat it.
func TestZoneKept(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var told []string
	options := func(c *Client) {
		c.o.StateDir = dir
		c.o.Zone = func(zone string) { mu.Lock(); defer mu.Unlock(); told = append(told, zone) }
	}
	inZone := func(generation uint64, zone string) *wire.ToProxy {
		m := begin("e", generation, generation == 1)
		m.GetBegin().Zone = zone
		return m
	}
	b := newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		if err := send(s, inZone(1, "a"), chunk(listener("a", 1)), commit(1), inZone(2, ""), chunk(listener("b", 1)), commit(2)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, options)
	testkit.Eventually(t, "both generations are served", func() bool { return b.keys() == "a b" })
	b.stop()
	if len(told) != 1 || told[0] != "a" {
		t.Fatalf("told %q", told)
	}
	again := newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		<-s.Context().Done()
		return nil
	}, options)
	testkit.Eventually(t, "the state is served", func() bool { return again.keys() == "a b" })
	again.stop()
	if len(told) != 2 || told[1] != "a" {
		t.Errorf("told %q", told)
	}
}
