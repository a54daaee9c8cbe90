package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// unreachable is a controller that is away.
const unreachable = "127.0.0.1:1"

// encoded is the content of the file.
func encoded(now time.Time, h *holding) ([]byte, error) {
	var messages bytes.Buffer
	head, err := encodeState(&messages, testGateway, now, h.state())
	return append(head, messages.Bytes()...), err
}

func someState(t testing.TB) []byte {
	t.Helper()
	h := newHolding()
	h.epoch, h.generation = "e", 5
	for _, r := range []*config.Resource{listener("a", 1), listener("b", 2), {Kind: &config.Resource_Certificate{
		Certificate: &config.Certificate{Key: "secret", KeyPem: []byte("private")}}}} {
		h.resources.set(r)
	}
	data, err := encoded(time.Now(), &h)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func inState(t *testing.T, data []byte) (string, func(*Client)) {
	t.Helper()
	dir := t.TempDir()
	if data != nil {
		if err := os.WriteFile(filepath.Join(dir, stateName), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(c *Client) { c.o.StateDir = dir }
}

// TestRestart: what was served is served again without a controller, and the stream goes on where it was.
func TestRestart(t *testing.T) {
	dir, keep := inState(t, nil)
	b := newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		if err := send(s, begin("e", 1, true), chunk(listener("a", 1), listener("b", 1)), commit(1),
			begin("e", 2, false), chunk(listener("b", 2)), commit(2)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, keep)
	testkit.Eventually(t, "two generations are served", func() bool { return len(b.applied()) == 2 })
	b.stop()
	info, err := os.Stat(filepath.Join(dir, stateName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("state file: %v, %v", info, err)
	}
	before, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		t.Fatal(err)
	}

	alone := startBench(t, unreachable, delivertest.CAFile(t, testkit.NewAuthority(t)), keep)
	testkit.Eventually(t, "it is served without a controller", alone.Ready)
	if got := alone.resources[listener("b", 1).ID()].GetListener().GetPort(); alone.keys() != "a b" || got != 2 {
		t.Errorf("served: %s, b with port %d", alone.keys(), got)
	}
	alone.stop()
	after, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading the state made it younger: %v", err)
	}

	hellos := make(chan *wire.Hello, 1)
	resumed := newBench(t, func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
		hellos <- hello
		if err := send(s, begin("e", 3, false), without("a"), commit(3)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, keep)
	if hello := <-hellos; hello.Epoch != "e" || hello.Generation != 2 || hello.Gateway != testGateway {
		t.Errorf("Hello: %v", hello)
	}
	testkit.Eventually(t, "the third generation is served", func() bool { return resumed.keys() == "b" })
}

// TestSavedWhileRunning: a crash loses no more than the last moments.
func TestSavedWhileRunning(t *testing.T) {
	dir, keep := inState(t, nil)
	newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		if err := send(s, begin("e", 1, true), chunk(listener("a", 1)), commit(1)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, keep)
	read := func() []byte {
		data, err := os.ReadFile(filepath.Join(dir, stateName))
		if err != nil {
			return nil
		}
		return data
	}
	testkit.Eventually(t, "the state is on disk", func() bool {
		g, err := decodeState(read(), testGateway, time.Now(), time.Hour)
		return err == nil && len(g.upserts) == 1
	})
}

// TestBadState: a state that is damaged, cut at any byte, old or another's is passed over.
func TestBadState(t *testing.T) {
	good := someState(t)
	now := time.Now()
	if g, err := decodeState(good, testGateway, now, time.Hour); err != nil || len(g.upserts) != 3 || g.number != 5 || g.epoch != "e" {
		t.Fatalf("%+v, %v", g, err)
	}
	for i := range good {
		if _, err := decodeState(good[:i], testGateway, now, time.Hour); err == nil {
			t.Fatalf("cut at byte %d it is taken", i)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := decodeState(bad, testGateway, now, time.Hour); err == nil {
			t.Fatalf("with byte %d changed it is taken", i)
		}
	}
	if _, err := decodeState(good, "n/other", now, time.Hour); err == nil {
		t.Error("another Gateway's is taken")
	}
	if _, err := decodeState(good, testGateway, now.Add(2*time.Hour), time.Hour); err == nil {
		t.Error("an old one is taken")
	}
	_, keep := inState(t, good[:len(good)-1])
	b := newBench(t, func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
		if hello.Epoch != "" {
			t.Errorf("Hello: %v", hello)
		}
		if err := send(s, begin("e", 9, true), chunk(listener("c", 1)), commit(9)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}, keep)
	testkit.Eventually(t, "the controller's is served", func() bool { return b.keys() == "c" })
}

// TestIncompleteState: where the proxy could not carry everything out, the next one asks for everything.
func TestIncompleteState(t *testing.T) {
	h := newHolding()
	h.epoch, h.generation = "e", 5
	h.resources.set(listener("a", 1))
	h.rejected[listener("a", 1).ID()] = rejection{listener("a", 2), "no"}
	data, err := encoded(time.Now(), &h)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := decodeState(data, testGateway, time.Now(), time.Hour); err != nil || g.epoch != "" || len(g.upserts) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestReplaceFile: what an interrupted save left is in nobody's way, and a save that fails leaves the old content.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, content := range []string{"old and longer", "new"} {
		if err := os.WriteFile(path+".new", []byte("half of a much longer cont"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := replaceFile(path, writing(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
	}
	half := errors.New("half")
	if err := replaceFile(path, func(f *os.File) error { f.WriteString("ne"); return half }); !errors.Is(err, half) {
		t.Errorf("half a save ends with %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("after half a save: %q, %v", got, err)
	}
	if err := os.RemoveAll(path + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, writing("newer")); err == nil {
		t.Error("a save that cannot be done succeeds")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}

func writing(content string) func(*os.File) error {
	return func(f *os.File) error { _, err := f.WriteString(content); return err }
}

// manyResources are those of 5,000 routes with a backend and an endpoint each, or nearly.
func manyResources() *holding {
	h := newHolding()
	h.epoch, h.generation = "e", 1
	for i := range 15000 {
		r := listener(fmt.Sprintf("load-%d/app-%d", i/100, i%100), uint32(i%60000))
		h.resources.set(r)
	}
	return &h
}

// TestSaveTakesNoCopy: what a save allocates is a small part of what it writes.
func TestSaveTakesNoCopy(t *testing.T) {
	h := manyResources()
	state := h.state()
	size := 0
	count := writerFunc(func(b []byte) (int, error) { size += len(b); return len(b), nil })
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	if _, err := encodeState(count, testGateway, time.Now(), state); err != nil {
		t.Fatal(err)
	}
	if took := allocated() - before; took > uint64(size)/4 {
		t.Errorf("to write %d bytes %d are allocated", size, took)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func BenchmarkSave(b *testing.B) {
	state := manyResources().state()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeState(io.Discard, testGateway, time.Now(), state); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDifference: a generation costs what it changes, not what is held.
func BenchmarkDifference(b *testing.B) {
	h := manyResources()
	r := listener("load-1/app-1", 7)
	g := &generation{epoch: "e", number: 2, upserts: map[config.ID]*config.Resource{r.ID(): r}}
	for b.Loop() {
		if u := h.difference(g); len(u.Upserts) != 1 || len(u.Removals) != 0 {
			b.Fatal(u)
		}
	}
}

func FuzzState(f *testing.F) {
	good := someState(f)
	f.Add(good, true)
	f.Add(good[:len(good)-3], true)
	f.Add(good[stateHead:], false)
	f.Fuzz(func(t *testing.T, data []byte, head bool) {
		var g *generation
		var err error
		if head {
			g, err = decodeState(data, testGateway, time.Unix(0, 0), time.Hour)
		} else {
			g, err = decodeMessages(data) // behind the checksum
		}
		if err != nil {
			return
		}
		h := newHolding()
		u := h.difference(g)
		if len(u.Upserts) != len(g.upserts) || len(u.Removals) > 0 {
			t.Fatalf("%d resources become %d upserts and %d removals", len(g.upserts), len(u.Upserts), len(u.Removals))
		}
		h.applied(g, u, &proxy.Result{})
		again, err := encoded(time.Unix(0, 0), &h)
		if err != nil {
			return // text that is not UTF-8 can be read but not written
		}
		back, err := decodeState(again, testGateway, time.Unix(0, 0), time.Hour)
		if err != nil || back.number != g.number || back.epoch != g.epoch || len(back.upserts) != len(g.upserts) {
			t.Fatalf("%+v, %v", back, err)
		}
	})
}

func FuzzAssembler(f *testing.F) {
	add := func(messages ...*wire.ToProxy) {
		var b bytes.Buffer
		for _, m := range messages {
			if _, err := protodelim.MarshalTo(&b, m); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	add(begin("e", 1, true), chunk(listener("a", 1), unknownResource()), without("b"), commit(1))
	add(begin("e", 1, true), begin("e", 2, true), chunk(), commit(2))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		var a assembler
		h := newHolding()
		for {
			m := &wire.ToProxy{}
			if err := (protodelim.UnmarshalOptions{MaxSize: int64(len(data)) + 1}).UnmarshalFrom(in, m); err != nil {
				return
			}
			g, err := a.take(m)
			if err != nil && (g != nil || a.open != nil) {
				t.Fatalf("after %v there is a generation left", err)
			}
			if g == nil || h.follows(g) != nil {
				continue
			}
			for id, r := range g.upserts {
				if _, gone := g.removals[id]; gone || id.Key == "" || r.ID() != id {
					t.Fatalf("%s: %v", id, r)
				}
			}
			u := h.difference(g)
			result := (&engine{resources: map[config.ID]*config.Resource{}}).apply(&config.Update{Upserts: u.Upserts})
			h.applied(g, u, &result)
			if g.full && h.resources.len() != len(g.upserts) {
				t.Fatalf("%d resources after a full generation of %d", h.resources.len(), len(g.upserts))
			}
			if _, err := proto.Marshal(h.ack()); err != nil && !bytes.ContainsFunc(data, func(r rune) bool { return r == '\uFFFD' }) {
				t.Fatal(err)
			}
		}
	})
}

// certificate is one with a chain, or without anything but its key.
func certificate(key, chain string) *config.Resource {
	c := &config.Certificate{Key: key}
	if chain != "" {
		c.ChainPem, c.KeyPem = []byte(chain), []byte("private")
	}
	return &config.Resource{Kind: &config.Resource_Certificate{Certificate: c}}
}

// TestUnreadInParts: a certificate that the controller cannot read stays also if the leader ends in the middle of a generation, and if the proxy restarts after it or in a later epoch.
func TestUnreadInParts(t *testing.T) {
	_, keep := inState(t, nil)
	halfway := []*wire.ToProxy{begin("f", 1, true), chunk(listener("a", 1)), chunk(certificate("c", ""))}
	sent := make(chan *wire.Hello, 8)
	var streams atomic.Int32
	play := func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
		sent <- hello
		switch streams.Add(1) {
		case 1:
			if err := send(s, begin("e", 1, true), chunk(listener("a", 1), certificate("c", "one")), commit(1)); err != nil {
				return err
			}
			_, err := receive(s)
			return errors.Join(err, errOver)
		case 2:
			return errors.Join(send(s, halfway...), errOver)
		case 3:
			if err := send(s, append(halfway, commit(1))...); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	}
	b := newBench(t, play, keep)
	for _, epoch := range []string{"", "e", "e"} {
		if hello := <-sent; hello.Epoch != epoch {
			t.Errorf("Hello of epoch %q, want %q", hello.Epoch, epoch)
		}
	}
	held := func(what string, b *bench, epoch string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool {
			b.Client.mu.Lock()
			defer b.Client.mu.Unlock()
			return b.held.epoch == epoch && string(b.held.resources.get(certificate("c", "").ID()).GetCertificate().GetChainPem()) == "one"
		})
	}
	held("it is kept in the next epoch", b, "f")
	b.stop()
	held("it is kept through a restart", startBench(t, unreachable, delivertest.CAFile(t, testkit.NewAuthority(t)), keep), "f")
}

// TestUnread: of what the controller cannot read a proxy keeps what it has, by whichever generation it is told, until it is removed; one that has nothing goes without.
func TestUnread(t *testing.T) {
	redis := func(address string) *config.Resource {
		return &config.Resource{Kind: &config.Resource_RateLimitService{RateLimitService: &config.RateLimitService{Key: testGateway, Address: address}}}
	}
	h := newHolding()
	apply := func(epoch string, full bool, removals []config.ID, resources ...*config.Resource) *config.Update {
		g := &generation{epoch: epoch, number: h.generation + 1, full: full, upserts: map[config.ID]*config.Resource{}, removals: map[config.ID]struct{}{}}
		for _, r := range resources {
			g.upserts[r.ID()] = r
		}
		for _, id := range removals {
			g.removals[id] = struct{}{}
		}
		u := h.difference(g)
		h.applied(g, u, &proxy.Result{})
		return u
	}
	held := func(what string, want ...*config.Resource) {
		t.Helper()
		for _, r := range want {
			if !proto.Equal(h.resources.get(r.ID()), r) {
				t.Errorf("%s: %v is held, want %v", what, h.resources.get(r.ID()), r)
			}
		}
		if s := h.state(); h.resources.len() != len(want) || len(s.resources) != len(want) || s.epoch == "" {
			t.Errorf("%s: %d resources are held, and %d stored of epoch %q", what, h.resources.len(), len(s.resources), s.epoch)
		}
	}
	apply("e", true, nil, listener("a", 1), certificate("a", "one"), certificate("b", "two"), redis("192.0.2.1:6379"))
	if u := apply("f", true, nil, listener("a", 1), certificate("a", ""), certificate("c", ""), redis("")); len(u.Upserts) != 0 || len(u.Removals) != 1 {
		t.Errorf("a new epoch changes %v", u)
	}
	held("a new epoch", listener("a", 1), certificate("a", "one"), redis("192.0.2.1:6379"))
	if u := apply("f", false, nil, certificate("a", "")); !u.Empty() {
		t.Errorf("the same again changes %v", u)
	}
	if u := apply("f", false, nil, certificate("a", "one")); !u.Empty() {
		t.Errorf("what is read and the same changes %v", u)
	}
	apply("f", false, nil, certificate("a", "three"))
	apply("f", false, nil, certificate("a", ""), certificate("c", "four"))
	held("some are read", listener("a", 1), certificate("a", "three"), certificate("c", "four"), redis("192.0.2.1:6379"))
	apply("f", false, []config.ID{{Kind: config.KindCertificate, Key: "a"}, {Kind: config.KindCertificate, Key: "d"}, redis("").ID()})
	held("they are gone", listener("a", 1), certificate("c", "four"))
	apply("f", false, nil, redis(""))
	held("a Redis without its address", listener("a", 1), certificate("c", "four"), redis(""))
	apply("f", false, nil, redis("192.0.2.1:6379"))
	held("a Redis that is read", listener("a", 1), certificate("c", "four"), redis("192.0.2.1:6379"))
	closed := redis("")
	closed.GetRateLimitService().FailClosed = true
	apply("f", false, nil, closed)
	closed = redis("192.0.2.1:6379")
	closed.GetRateLimitService().FailClosed = true
	held("other settings of a Redis whose address is not read", listener("a", 1), certificate("c", "four"), closed)
}

// TestSaveDelay: saving takes a small part of the time, but after a save that took long, the next one does not wait for minutes.
func TestSaveDelay(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ took, ago, want time.Duration }{
		{0, time.Hour, saveDelay},
		{2 * time.Millisecond, 0, time.Second},
		{2 * time.Millisecond, 900 * time.Millisecond, saveDelay},
		{2 * time.Second, 0, maxSaveDelay},
		{time.Minute, 4 * time.Second, maxSaveDelay - 4*time.Second},
		{time.Minute, time.Minute, saveDelay},
	} {
		s := &saver{took: c.took, ended: now.Add(-c.ago)}
		if got := s.delay(now); got != c.want {
			t.Errorf("%s after a save that took %s: %s, want %s", c.ago, c.took, got, c.want)
		}
	}
}

// TestRemovalOfUnknownKind: a newer controller also removes what this version never took.
func TestRemovalOfUnknownKind(t *testing.T) {
	var a assembler
	h := newHolding()
	for _, messages := range [][]*wire.ToProxy{
		{begin("e", 1, true), chunk(listener("a", 1), unknownResource()), commit(1)},
		{begin("e", 2, false), {Message: &wire.ToProxy_Chunk{Chunk: &wire.Chunk{Removals: []*wire.ResourceId{
			{Kind: 200, Key: "of a later version"}, {Kind: 1000, Key: "of a much later one"}, {Kind: 0, Key: "of none"}}}}}, commit(2)},
	} {
		for _, m := range messages {
			g, err := a.take(m)
			if err != nil {
				t.Fatal(err)
			}
			if g == nil {
				continue
			}
			if err := h.follows(g); err != nil {
				t.Fatal(err)
			}
			u := h.difference(g)
			if len(u.Removals) > 0 {
				t.Errorf("generation %d removes %v, which never was here", g.number, u.Removals)
			}
			h.applied(g, u, &proxy.Result{})
		}
	}
	if h.resources.len() != 1 || h.generation != 2 {
		t.Errorf("generation %d with %d resources, want the listener in generation 2", h.generation, h.resources.len())
	}
}

// TestUnknownFields: a listener with a field that this version does not know is refused, not without its port. What was rejected for such a field is
// kept on disk in the place of the version before, which may restrict less.
func TestUnknownFields(t *testing.T) {
	backend := func(port uint32) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b", Port: port}}}
	}
	h := newHolding()
	apply := func(result proxy.Result, resources ...*config.Resource) {
		g := &generation{epoch: "e", number: h.generation + 1, upserts: map[config.ID]*config.Resource{}}
		for _, r := range resources {
			g.upserts[r.ID()] = r
		}
		h.applied(g, h.difference(g), &result)
	}
	apply(proxy.Result{}, listener("a", 1), listener("c", 2), backend(1), &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: "r"}}})
	strict, back := listener("a", 1), backend(2)
	testkit.AddField(t, strict.GetListener(), config.FirstIgnorable-1)
	testkit.AddField(t, back.GetBackend(), config.FirstIgnorable-1)
	route := &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: "r", Name: "cannot be carried out"}}}
	refused := errors.New("refused")
	apply(proxy.Result{Listeners: map[string]*proxy.ListenerError{"a": {Invalid: refused}, "c": {Invalid: refused}}, Rejected: map[config.ID]error{back.ID(): refused, route.ID(): refused}}, strict, back, route)

	a := h.ack()
	var rejected []string
	for _, f := range a.Rejected {
		rejected = append(rejected, f.Resource.Key)
	}
	if slices.Sort(rejected); !slices.Equal(rejected, []string{"a", "b", "r"}) || len(a.Listeners) != 1 || a.Listeners[0].Resource.Key != "c" {
		t.Errorf("%v", a)
	}
	s := h.state()
	if s.epoch != "" || len(s.resources) != 4 {
		t.Errorf("epoch %q, %d resources", s.epoch, len(s.resources))
	}
	for _, r := range s.resources {
		switch {
		case r.GetListener().GetKey() == "a" && !proto.Equal(r, strict), r.GetBackend() != nil && !proto.Equal(r, back), r.GetRoute().GetName() != "":
			t.Errorf("kept: %v", r)
		}
	}
}
