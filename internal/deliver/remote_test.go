package deliver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/client"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// remote is a Remote that serves over TLS on loopback.
type remote struct {
	*deliver.Remote
	caFile, address string
	generation      uint64
}

func newRemote(t *testing.T, change ...func(*deliver.RemoteOptions)) *remote {
	t.Helper()
	o := deliver.RemoteOptions{Authenticate: delivertest.Identity, AnswerLimit: time.Hour}
	for _, f := range change {
		f(&o)
	}
	authority := testkit.NewAuthority(t)
	c := &remote{Remote: deliver.NewRemote(o), caFile: delivertest.CAFile(t, authority)}
	c.address, _ = delivertest.Serve(t, authority, "127.0.0.1:0", func(s *grpc.Server) { c.Serve(s) }, deliver.ServerOptions()...)
	t.Cleanup(c.Standby)
	return c
}

// configure delivers a generation with these resources beside those that there are.
func (c *remote) configure(resources ...*config.Resource) {
	c.generation++
	c.Apply(&deliver.Change{Config: &config.Update{Generation: c.generation, Upserts: resources}, Complete: true})
}

// listener is the one of a Gateway.
func listener(gateway string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: gateway + "/l0", Gateway: gateway, Name: "l0", Port: 80}}}
}

// route has a match for each path, at the listener of a Gateway.
func route(name, gateway string, paths ...string) *config.Resource {
	rule := &config.Rule{}
	for _, path := range paths {
		rule.Matches = append(rule.Matches, &config.Match{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: path}})
	}
	return &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: "HTTPRoute/n/" + name, Namespace: "n", Name: name,
		Attachments: []*config.Attachment{{Listener: gateway + "/l0", Hostnames: []*config.Hostname{{}}}}, Rules: []*config.Rule{rule}}}}
}

// started leads, with a Gateway and a proxy of it, in order.
func started(t *testing.T, change ...func(*deliver.RemoteOptions)) (*remote, *peer) {
	t.Helper()
	c := newRemote(t, change...)
	c.configure(listener("n/gw"), route("r", "n/gw", "/one"))
	c.Lead("first", &deliver.Withheld{})
	p := c.connect(t, "n/gw", "pod-0")
	testkit.Eventually(t, "the proxy is configured", func() bool { return c.acked("n/gw", "pod-0") })
	return c, p
}

// peer is a client whose engine serves everything.
type peer struct {
	*client.Client
	stop func()

	mu        sync.Mutex
	resources map[config.ID]bool
	told      []string // zones
	updates   []int    // how much each changed
}

func (p *peer) apply(u *config.Update) proxy.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, len(u.Upserts)+len(u.Removals))
	for _, r := range u.Upserts {
		p.resources[r.ID()] = true
	}
	for _, id := range u.Removals {
		delete(p.resources, id)
	}
	return proxy.Result{Generation: u.Generation}
}

// zone takes the proxy's zone.
func (p *peer) zone(zone string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, zone)
}

// zones are those that it was told, in their order.
func (p *peer) zones() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.told, " ")
}

// changes are how many resources each update changed.
func (p *peer) changes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.updates)
}

// ids are the resources that it has.
func (p *peer) ids() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.resources {
		out = append(out, id.String())
	}
	return out
}

// connect starts a proxy.
func (c *remote) connect(t *testing.T, gateway, pod string) *peer {
	t.Helper()
	p := &peer{resources: map[config.ID]bool{}}
	p.Client = client.New(client.Options{
		Controller: strings.Replace(c.address, "127.0.0.1", delivertest.Host, 1), CAFile: c.caFile, Gateway: gateway, Version: "test",
		TokenFile: testkit.WriteFile(t, "token", []byte(delivertest.Token(gateway, pod))), Apply: p.apply, Zone: p.zone, Rebind: func() proxy.Result { return proxy.Result{} }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	p.stop = func() { cancel(); <-done }
	t.Cleanup(p.stop)
	return p
}

func (c *remote) gateway(name string) (out deliver.RemoteGateway) {
	for _, g := range c.Status().Gateways {
		if g.Gateway == name {
			out = g
		}
	}
	return out
}

func (c *remote) proxies(gateway string) []deliver.RemoteProxy { return c.gateway(gateway).Proxies }

// acked reports whether a pod is connected and has acknowledged what is current.
func (c *remote) acked(gateway, pod string) bool {
	g := c.gateway(gateway)
	return slices.ContainsFunc(g.Proxies, func(p deliver.RemoteProxy) bool {
		return p.Pod == pod && p.Connected && p.Acked > 0 && p.Acked == g.Generation
	})
}

// TestIdentities: who is not the Gateway's proxy gets nothing.
func TestIdentities(t *testing.T) {
	c, _ := started(t)
	c.configure(listener("n/other"))
	for _, x := range []struct {
		what, token, gateway string
		code                 codes.Code
	}{
		{"another Gateway's", delivertest.Token("n/other", "pod"), "n/gw", codes.PermissionDenied},
		{"none", "", "n/gw", codes.Unauthenticated},
		{"one that has expired", delivertest.Token("n/gw", "pod") + "0", "n/gw", codes.Unauthenticated},
		{"of no Gateway", delivertest.Token("n/nothing", "pod"), "n/nothing", codes.NotFound},
	} {
		m, err := delivertest.Ask(t, c.address, c.caFile, x.token, &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: x.gateway}}})
		if m != nil || status.Code(err) != x.code {
			t.Errorf("with the identity of %s: %v, %v; want %v", x.what, m, err, x.code)
		}
	}
	m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "pod"), &wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: &wire.Ack{}}})
	if m != nil || status.Code(err) != codes.InvalidArgument {
		t.Errorf("without Hello: %v, %v", m, err)
	}
	if m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "pod"), &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil || !m.GetBegin().GetFull() {
		t.Errorf("with its own: %v, %v", m, err)
	}
}

// TestLiar: a proxy can neither acknowledge what it was not sent nor speak for another Gateway's listeners.
func TestLiar(t *testing.T) {
	c, _ := started(t)
	c.configure(listener("n/other"))
	victim := c.connect(t, "n/other", "x")
	testkit.Eventually(t, "the other Gateway is served", func() bool { return c.acked("n/other", "x") && victim.Ready() })
	c.Reports()
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "liar"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	var generation uint64
	for generation == 0 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		generation = m.GetCommit().GetGeneration()
	}
	ack := func(generation uint64, listeners ...*wire.Fault) *wire.FromProxy {
		return &wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: &wire.Ack{Epoch: "first", Generation: generation, Listeners: listeners}}}
	}
	if err := s.Send(ack(generation, &wire.Fault{Resource: &wire.ResourceId{Kind: uint32(config.KindListener), Key: "n/other/l0"}, Message: "taken"},
		&wire.Fault{}, nil)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it was heard", func() bool { return c.acked("n/gw", "liar") })
	for _, r := range c.Reports() {
		if len(r.Listeners) > 0 {
			t.Errorf("a proxy spoke for another's listener: %+v", r)
		}
	}
	if err := s.Send(ack(generation + 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("after it acknowledged what it was not sent: %v", err)
	}
}

// TestSecondStream: the newer of two streams of one pod wins, and the end of the older one changes nothing.
func TestSecondStream(t *testing.T) {
	c, p := started(t)
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "pod-9"))
	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}
	if err := s.Send(hello); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	newer := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "pod-9"))
	if err := newer.Send(hello); err != nil {
		t.Fatal(err)
	}
	if m, err := newer.Recv(); err != nil || !m.GetBegin().GetFull() {
		t.Fatalf("the newer one: %v, %v", m, err)
	}
	var err error
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Aborted {
		t.Errorf("the older one ended with %v", err)
	}
	if !slices.ContainsFunc(c.proxies("n/gw"), func(x deliver.RemoteProxy) bool { return x.Pod == "pod-9" && x.Connected }) || !p.Ready() {
		t.Errorf("proxies: %+v", c.proxies("n/gw"))
	}
}

// TestNothingBeforeEverything: a proxy never gets the little that a controller knows while it starts.
func TestNothingBeforeEverything(t *testing.T) {
	c := newRemote(t)
	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}
	refused := func(when string) {
		t.Helper()
		if m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "pod"), hello); m != nil || status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, %v", when, m, err)
		}
	}
	refused("at the beginning")
	c.Lead("first", &deliver.Withheld{})
	c.SetReady("n/gw", []string{"pod"})
	c.Apply(&deliver.Change{Config: &config.Update{}})
	refused("as leader without objects")
	c.configure(listener("n/gw"))
	if m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "pod"), hello); err != nil || !m.GetBegin().GetFull() {
		t.Errorf("as leader with objects: %v, %v", m, err)
	}
	c.Standby()
	refused("on standby")
}

// TestLargeConfiguration goes in several Chunks, one of them with a Resource that is too large for any.
func TestLargeConfiguration(t *testing.T) {
	c := newRemote(t)
	resources := []*config.Resource{listener("n/gw")}
	for i := range 300 {
		paths := []string{"/" + strings.Repeat("x", 10_000)}
		if i == 7 {
			for j := range 1500 {
				paths = append(paths, fmt.Sprintf("/%d-%s", j, strings.Repeat("y", 1200)))
			}
		}
		resources = append(resources, route(fmt.Sprintf("r%d", i), "n/gw", paths...))
	}
	c.configure(resources...)
	c.Lead("first", &deliver.Withheld{})
	p := c.connect(t, "n/gw", "pod")
	testkit.Eventually(t, "it is configured", func() bool { return c.acked("n/gw", "pod") })
	if n := len(p.ids()); n != 301 {
		t.Errorf("%d resources, want 301", n)
	}
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "other"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	chunks := 0
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetCommit() != nil {
			break
		}
		if k := m.GetChunk(); k != nil {
			if chunks++; len(k.Upserts) == 0 {
				t.Error("an empty Chunk")
			}
		}
	}
	if chunks < 4 || chunks > 10 { // 3 MB in small ones and 1.8 MB in one
		t.Errorf("%d Chunks", chunks)
	}
}

// TestPodIsGone: the stream of a pod that is deleted ends at once, and its token, which is valid on, opens no other; nor does one
// of a pod that had the name before.
func TestPodIsGone(t *testing.T) {
	c := newRemote(t)
	c.configure(listener("n/gw"), route("r", "n/gw", "/one"))
	c.Lead("first", &deliver.Withheld{})
	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}
	refused := func(what, pod string) {
		t.Helper()
		if m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", pod), hello); m != nil || status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, %v", what, m, err)
		}
	}
	refused("a pod that is not known", "pod-0@one")
	c.SetPods("n", "gw", map[string]string{"pod-0": "one", "pod-1": "x"})
	p := c.connect(t, "n/gw", "pod-0@one")
	testkit.Eventually(t, "the pod is served", func() bool { return c.acked("n/gw", "pod-0") })
	refused("one that had the name before", "pod-0@zero")
	if !c.acked("n/gw", "pod-0") {
		t.Error("who was refused took the place of the pod")
	}
	c.SetPods("n", "gw", map[string]string{"pod-0": "two", "pod-1": "x"})
	testkit.Eventually(t, "its stream has ended", func() bool {
		return !slices.ContainsFunc(c.proxies("n/gw"), func(x deliver.RemoteProxy) bool { return x.Connected })
	})
	refused("a pod that is gone", "pod-0@one")
	p.stop()
	next := c.connect(t, "n/gw", "pod-0@two")
	testkit.Eventually(t, "the next one of its name is served", func() bool { return next.Ready() && c.acked("n/gw", "pod-0") })
	c.SetPods("n", "gw", nil)
	testkit.Eventually(t, "its stream has ended", func() bool { return len(c.proxies("n/gw")) == 0 })
}

// TestManyAnswers: a proxy that answers again and again what it was not asked loses its stream, and the others notice nothing.
func TestManyAnswers(t *testing.T) {
	c, _ := started(t)
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "chatty"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	var generation uint64
	for generation == 0 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		generation = m.GetCommit().GetGeneration()
	}
	for i := range 1000 {
		ack := &wire.Ack{Epoch: "first", Generation: generation, Listeners: []*wire.Fault{{Message: fmt.Sprint(i),
			Resource: &wire.ResourceId{Kind: uint32(config.KindListener), Key: "n/gw/l0"}}}}
		if s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: ack}}) != nil {
			break // it has ended
		}
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it ended with %v", err)
	}
	if !c.acked("n/gw", "pod-0") {
		t.Error("another proxy is concerned")
	}
}

// TestLongWords: whatever a proxy says, a line of the log is short.
func TestLongWords(t *testing.T) {
	log := &testkit.Log{}
	c, _ := started(t, func(o *deliver.RemoteOptions) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	long := strings.Repeat("x", 100_000)
	token := delivertest.Token("n/gw", "talker")
	hello := func(gateway string) *wire.FromProxy {
		return &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: gateway, Version: long}}}
	}
	if _, err := delivertest.Ask(t, c.address, c.caFile, token, hello("n/"+long)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("of another Gateway: %v", err)
	}
	for _, ack := range []*wire.Ack{{Epoch: "first", Generation: 1, Error: long}, {Epoch: long, Generation: 1 << 60}} {
		s := delivertest.Dial(t, c.address, c.caFile, token)
		if err := s.Send(hello("n/gw")); err != nil {
			t.Fatal(err)
		}
		delivertest.Committed(t, s)
		if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: ack}}); err != nil {
			t.Fatal(err)
		}
		want := "refuses its configuration"
		if ack.Error == "" {
			want = "was never sent"
		}
		testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), want) })
	}
	for line := range strings.SplitSeq(log.String(), "\n") {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes: %.300s", len(line), line)
		}
	}
	for _, p := range c.proxies("n/gw") {
		if len(p.Version) > 600 {
			t.Errorf("a version of %d bytes", len(p.Version))
		}
	}
}

// TestManyStreams: a pod that begins stream after stream is refused, and others are not concerned.
func TestManyStreams(t *testing.T) {
	c, p := started(t)
	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}
	var err error
	// More than ever fits into the burst and the seconds that a slow machine takes for this.
	for n := 0; n < 1000 && err == nil; n++ {
		_, err = delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "restless"), hello)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it ended with %v", err)
	}
	if _, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/gw", "calm"), hello); err != nil {
		t.Errorf("another pod is refused: %v", err)
	}
	if !p.Ready() || !c.acked("n/gw", "pod-0") {
		t.Error("another proxy is concerned")
	}
}

// TestManyWords: an Ack that rejects one thing a hundred thousand times, in other words than the last, writes few lines.
func TestManyWords(t *testing.T) {
	log := &testkit.Log{}
	c, _ := started(t, func(o *deliver.RemoteOptions) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	s := delivertest.Dial(t, c.address, c.caFile, delivertest.Token("n/gw", "talker"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	commit := delivertest.Committed(t, s)
	for _, word := range []string{"first", "last"} {
		ack := &wire.Ack{Epoch: "first", Generation: commit.Generation}
		for range 100_000 { // of a kind that is not known here
			ack.Rejected = append(ack.Rejected, &wire.Fault{Message: word})
		}
		if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: ack}}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "error="+word) })
	}
	if n := strings.Count(log.String(), "cannot apply"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// TestLimitsBeforeIdentity: the server tells everybody, before anything is asked, how many streams a connection may have and how
// large the head of a call may be, and closes a connection that is idle or speaks something else.
func TestLimitsBeforeIdentity(t *testing.T) {
	c := newRemote(t)
	pem, err := os.ReadFile(c.caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	conn, err := tls.Dial("tcp", c.address, &tls.Config{RootCAs: roots, ServerName: delivertest.Host, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		settings, ok := f.(*http2.SettingsFrame)
		if !ok || settings.IsAck() {
			continue
		}
		for id, most := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 4, http2.SettingMaxHeaderListSize: 32 << 10} {
			if value, told := settings.Value(id); !told || value > most {
				t.Errorf("%v is %d, told: %v; want at most %d", id, value, told, most)
			}
		}
		return
	}
}

// TestMergedGateways: proxies of several Gateways are sent the listeners and routes of each, and what they say of these counts. Those of one Gateway alone are sent its own, and
// cannot ask for more.
func TestMergedGateways(t *testing.T) {
	c := newRemote(t)
	const merged = "infra/gatewayclass:shared"
	of := func(gateway string) *config.Resource {
		l := listener(gateway)
		l.GetListener().Merged = merged
		return l
	}
	c.configure(of("n/a"), of("m/b"), listener("n/alone"), route("a", "n/a", "/a"), route("b", "m/b", "/b"), route("alone", "n/alone", "/alone"))
	c.Lead("first", &deliver.Withheld{})
	p := c.connect(t, merged, "pod-0")
	own := c.connect(t, "n/a", "own-0") // has not ended yet
	holds := func(p *peer, routes ...string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		var have []string
		for id := range p.resources {
			if id.Kind == config.KindRoute {
				have = append(have, strings.TrimPrefix(id.Key, "HTTPRoute/n/"))
			}
		}
		slices.Sort(have)
		return slices.Equal(have, routes)
	}
	testkit.Eventually(t, "the proxies have the routes of both Gateways", func() bool { return holds(p, "a", "b") })
	testkit.Eventually(t, "a proxy of one Gateway has its routes", func() bool { return holds(own, "a") })

	for _, g := range c.Status().Gateways {
		if want := map[string][]string{merged: {"m/b", "n/a"}}[g.Gateway]; !slices.Equal(g.Merged, want) {
			t.Errorf("the status of %s has Gateways %q, want %q", g.Gateway, g.Merged, want)
		}
	}

	c.configure(of("n/new"), route("new", "n/new", "/new"))
	testkit.Eventually(t, "the routes of a Gateway that joins are added", func() bool { return holds(p, "a", "b", "new") })
	if !holds(own, "a") {
		t.Error("a proxy of one Gateway has the routes of another")
	}

	c.generation++
	c.Apply(&deliver.Change{Config: &config.Update{Generation: c.generation, Removals: []config.ID{{Kind: config.KindListener, Key: "m/b/l0"}}}, Complete: true})
	testkit.Eventually(t, "the routes of a Gateway that leaves are removed", func() bool { return holds(p, "a", "new") })

	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: merged}}}
	if m, err := delivertest.Ask(t, c.address, c.caFile, delivertest.Token("n/a", "own-1"), hello); m != nil || status.Code(err) != codes.PermissionDenied {
		t.Errorf("a proxy of one Gateway that asks for the configuration of all: %v, %v", m, err)
	}
}
