package exchange

import (
	"strconv"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// TestMirrorShares: however many slow mirrors namespaces have, each other namespace has room for copies, and each namespace has for
// those to another mirror.
func TestMirrorShares(t *testing.T) {
	var m mirrors
	fill := func(namespace string, b *upstream.Backend) (n int) {
		for m.enter(namespace, b) {
			n++
		}
		return n
	}
	var slow []*upstream.Backend
	most := 0
	for range 20 {
		b := &upstream.Backend{}
		slow = append(slow, b)
		most += fill("a", b)
	}
	if most < maxMirrors/3 || most > maxMirrors/2 {
		t.Errorf("20 mirrors of one namespace have %d copies of %d under way", most, maxMirrors)
	}
	if n := fill("b", slow[0]); n < maxMirrors/10 {
		t.Errorf("another namespace has room for %d copies to one of them", n)
	}
	if n := fill("c", &upstream.Backend{}); n < maxMirrors/20 {
		t.Errorf("a third has room for %d", n)
	}
	for i := range 100 {
		if n := fill(strconv.Itoa(i), &upstream.Backend{}); n < ownMirrors {
			t.Fatalf("namespace %d has room for %d copies, want %d", i, n, ownMirrors)
		}
	}
	for k, n := range m.to {
		for range n {
			m.leave(k.namespace, k.backend)
		}
	}
	if m.count() != 0 || len(m.to) != 0 || len(m.of) != 0 {
		t.Errorf("%d copies left, %d and %d entries", m.count(), len(m.to), len(m.of))
	}
}

// TestMirrorsOfOneNamespaceShare: a slow mirror leaves room for the copies that other rules of its namespace want.
func TestMirrorsOfOneNamespaceShare(t *testing.T) {
	var m mirrors
	slow, fast := &upstream.Backend{}, &upstream.Backend{}
	for m.enter("a", slow) {
	}
	n := 0
	for m.enter("a", fast) {
		n++
	}
	if n < maxMirrors/20 {
		t.Errorf("beside a slow mirror there is room for %d copies", n)
	}
}

// TestMirrorEndsInTime: a copy does not wait longer for a body than a copy may take.
func TestMirrorEndsInTime(t *testing.T) {
	m := &mirrored{body: &mirroredBody{more: make(chan struct{}, 1)}} // nothing comes
	if m.write(nil, time.Now()) {
		t.Error("a copy is whole of which nothing has come")
	}
}

// TestMirrorTakesSmallParts: a mirror has fallen behind by the bytes that wait for it, in however many parts they came.
func TestMirrorTakesSmallParts(t *testing.T) {
	m := &mirrored{body: &mirroredBody{more: make(chan struct{}, 1)}}
	part := []byte("0123456789abcdef")
	for range mirrorQueue / len(part) {
		m.feed(part)
	}
	if m.broken.Load() {
		t.Fatal("given up with no more bytes than may wait")
	}
	taken, _ := m.body.take(0)
	m.feed(part)
	if !m.late.Load() || len(taken) != mirrorQueue {
		t.Errorf("%d bytes were taken, and more may wait while they are being sent", len(taken))
	}
}
