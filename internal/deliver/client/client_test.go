package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestCutAtEveryMessage: a stream that ends within a generation leaves what was in force, whole;
// the next stream brings the rest.
func TestCutAtEveryMessage(t *testing.T) {
	first := []*wire.ToProxy{begin("e", 1, true), chunk(listener("a", 1)), chunk(listener("b", 1)), commit(1)}
	second := []*wire.ToProxy{begin("e", 2, false), chunk(listener("a", 2)), without("b"), chunk(listener("c", 2)), commit(2)}
	for cut := range len(second) {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			halfway := make(chan struct{})
			var streams atomic.Int32
			var b *bench
			started := make(chan struct{})
			b = newBench(t, func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
				<-started
				switch streams.Add(1) {
				case 1:
					if err := send(s, first...); err != nil {
						return err
					}
					if _, err := receive(s); err != nil {
						return err
					}
					return send(s, second[:cut]...) // and the end
				case 2:
					if hello.Epoch != "e" || hello.Generation != 1 || b.keys() != "a b" {
						t.Errorf("after the cut: Hello %v, served: %s", hello, b.keys())
					}
					close(halfway)
					if err := send(s, second...); err != nil {
						return err
					}
				}
				<-s.Context().Done()
				return nil
			})
			close(started)
			<-halfway
			testkit.Eventually(t, "the second generation is served", func() bool { return b.keys() == "a c" })
			if updates := b.applied(); len(updates) != 2 || len(updates[1].Upserts) != 2 || len(updates[1].Removals) != 1 || !b.Ready() {
				t.Errorf("%d updates, the last %v", len(updates), updates[len(updates)-1])
			}
		})
	}
}

// TestNewEpoch: everything comes again, and only what differs is applied.
func TestNewEpoch(t *testing.T) {
	var streams atomic.Int32
	b := newBench(t, func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
		switch streams.Add(1) {
		case 1:
			if err := send(s, begin("one", 7, true), chunk(listener("a", 1), listener("b", 1), listener("c", 1)), commit(7)); err != nil {
				return err
			}
			_, err := receive(s)
			return err
		case 2:
			if err := send(s, begin("two", 3, true), chunk(listener("a", 1), listener("b", 2), listener("d", 1)), commit(3)); err != nil {
				return err
			}
		}
		<-s.Context().Done()
		return nil
	})
	testkit.Eventually(t, "the second epoch is served", func() bool { return b.keys() == "a b d" })
	u := b.applied()[1]
	if len(u.Upserts) != 2 || len(u.Removals) != 1 || u.Removals[0].Key != "c" || u.Upserts[0].ID().Key != "b" || u.Upserts[1].ID().Key != "d" {
		t.Errorf("applied %v, want b, d and the removal of c", u)
	}
}

// unknownResource is of a kind of a later version: a field number that is not assigned yet.
func unknownResource() *config.Resource {
	r := &config.Resource{}
	r.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x02, 0x0a, 0x00}) // field 1023, 2 bytes
	return r
}

// TestAnswers: unknown and rejected resources, and listeners that come and go, are in the answers.
func TestAnswers(t *testing.T) {
	acks := make(chan *wire.Ack, 10)
	e := make(chan *engine, 1)
	b := newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		eng := <-e
		eng.mu.Lock()
		eng.listeners = map[string]*proxy.ListenerError{"a": {Unbound: []*proxy.BindError{{Err: syscall.EADDRINUSE}}}}
		eng.rejects = map[config.ID]error{listener("bad", 1).ID(): errors.New("cannot")}
		eng.mu.Unlock()
		if err := send(s, begin("e", 4, true), chunk(listener("a", 80), unknownResource(), listener("bad", 1)), commit(4)); err != nil {
			return err
		}
		for i := 0; ; i++ {
			a, err := receive(s)
			if err != nil {
				return err
			}
			acks <- a
			eng.mu.Lock()
			eng.listeners = nil
			if i == 1 {
				eng.rejects = nil
			}
			eng.mu.Unlock()
			if i == 1 {
				if err := send(s, begin("e", 5, false), chunk(listener("bad", 2)), commit(5)); err != nil {
					return err
				}
			}
		}
	}, func(c *Client) { c.rebindEvery = time.Millisecond })
	e <- b.engine
	first := <-acks
	if len(first.Listeners) != 1 || first.Listeners[0].Resource.Key != "a" || !strings.Contains(first.Listeners[0].Message, "port 80 is taken") || first.Generation != 4 {
		t.Errorf("first answer: %v", first)
	}
	if len(first.Rejected) != 2 || first.Rejected[0].Resource.Key != "bad" || !strings.Contains(first.Rejected[1].Message, "upgrade the proxy") {
		t.Errorf("rejected: %v", first.Rejected)
	}
	second := <-acks
	if len(second.Listeners) != 0 || second.Generation != 4 || second.Epoch != "e" || len(second.Rejected) != 2 {
		t.Errorf("after the port was freed: %v", second)
	}
	if third := <-acks; third.Generation != 5 || len(third.Rejected) != 1 {
		t.Errorf("after the resource was mended: %v", third)
	}
	if b.keys() != "a bad" {
		t.Errorf("served: %s", b.keys())
	}
}

// TestLongAnswer: an answer that names thousands of resources is one that the controller reads.
func TestLongAnswer(t *testing.T) {
	h := newHolding()
	h.unknown = true
	const most = 20_000
	reject := func(r *config.Resource) {
		h.rejected[r.ID()] = rejection{r, "field 99 is not known; " + strings.Repeat("upgrade the proxy ", 50)}
	}
	for i := range most - 1 {
		reject(&config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: fmt.Sprintf("Service/namespace/backend-%05d/80", i)}}})
	}
	reject(listener("namespace/gateway/listener", 80))
	a := h.ack()
	if first := a.Rejected[0].Resource; first.Kind != uint32(config.KindListener) {
		t.Errorf("the first fault is of kind %d, which has no status of its own", first.Kind)
	}
	if size := proto.Size(a); size > 1<<20 || size < 512<<10 {
		t.Errorf("the answer has %d bytes", size)
	}
	last := a.Rejected[len(a.Rejected)-1]
	if omitted := most + 1 - len(a.Rejected); last.Resource != nil || !strings.Contains(last.Message, "does not know") ||
		!strings.Contains(last.Message, fmt.Sprintf("%d more faults are not listed", omitted)) {
		t.Errorf("%d of %d faults, the last: %v", len(a.Rejected), most, last)
	}
}

// TestUnavailableIsSaid: what the proxy cannot reach is said in an answer, and once more when that has changed.
func TestUnavailableIsSaid(t *testing.T) {
	acks := make(chan *wire.Ack, 8)
	b := newBench(t, func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
		if err := send(s, begin("e", 4, true), chunk(listener("a", 80)), commit(4)); err != nil {
			return err
		}
		for {
			a, err := receive(s)
			if err != nil {
				return err
			}
			acks <- a
		}
	}, func(c *Client) {
		id, calls := config.ID{Kind: config.KindRateLimitService, Key: testGateway}, 0
		c.rebindEvery = time.Millisecond
		c.o.Unavailable = func() map[config.ID]string {
			c.mu.Lock()
			linked := c.link != nil
			c.mu.Unlock()
			switch calls++; {
			case calls > 10 && !linked:
				calls--
				return nil
			case calls > 30:
				return nil
			case calls > 10:
				return map[config.ID]string{id: "Redis is away"}
			}
			return nil
		}
	})
	if first := <-acks; len(first.Unavailable) != 0 || first.Generation != 4 {
		t.Errorf("first answer: %v", first)
	}
	if second := <-acks; len(second.Unavailable) != 1 || second.Unavailable[0].Resource.Key != testGateway || second.Unavailable[0].Resource.Kind != uint32(config.KindRateLimitService) ||
		second.Unavailable[0].Message != "Redis is away" || second.Generation != 4 {
		t.Errorf("second answer: %v", second)
	}
	if third := <-acks; len(third.Unavailable) != 0 || third.Generation != 4 {
		t.Errorf("third answer: %v", third)
	}
	if b.keys() != "a" {
		t.Errorf("served: %s", b.keys())
	}
}

// TestStateWhileSocketsAreBound: the state can be read while the proxy applies a generation or binds sockets, which may take long.
func TestStateWhileSocketsAreBound(t *testing.T) {
	for _, what := range []string{"apply", "rebind", "unavailable"} {
		t.Run(what, func(t *testing.T) {
			e := &engine{resources: map[config.ID]*config.Resource{}, listeners: map[string]*proxy.ListenerError{"a": {Invalid: errors.New("taken")}}}
			begun, release := make(chan struct{}), make(chan struct{})
			block := func(where string) {
				if where == what {
					close(begun)
					<-release
				}
			}
			c := New(Options{Gateway: testGateway,
				Apply: func(u *config.Update) proxy.Result {
					if u.Generation == 2 {
						block("apply")
					}
					return e.apply(u)
				},
				Rebind:      func() proxy.Result { return e.rebind() },
				Unavailable: func() map[config.ID]string { block("unavailable"); return nil },
			})
			at := func(n uint64) *generation {
				a := listener("a", 80)
				return &generation{epoch: "e", number: n, full: true, upserts: map[config.ID]*config.Resource{a.ID(): a}}
			}
			c.apply(at(1))
			c.o.Rebind = func() proxy.Result { block("rebind"); return e.rebind() }
			done := make(chan struct{})
			go func() {
				defer close(done)
				if what == "apply" {
					c.apply(at(2))
				} else {
					c.rebind()
				}
			}()
			<-begun
			read := make(chan struct{})
			go func() {
				defer close(read)
				d, err := c.Config()
				if !c.Ready() || err != nil || d.Generation != 1 {
					t.Errorf("ready %v, generation %d, error %v", c.Ready(), d.Generation, err)
				}
			}()
			select {
			case <-read:
			case <-time.After(10 * time.Second):
				t.Error("the state cannot be read meanwhile")
			}
			close(release)
			<-done
			<-read
		})
	}
}

// TestRefusal: what cannot be followed is refused, changes nothing, and is followed by everything.
func TestRefusal(t *testing.T) {
	for name, wrong := range map[string][]*wire.ToProxy{
		"changes of another epoch": {begin("other", 2, false), chunk(listener("x", 1)), commit(2)},
		"another generation":       {begin("e", 2, false), chunk(listener("x", 1)), commit(3)},
		"no begin":                 {chunk(listener("x", 1))},
		"commit alone":             {commit(2)},
		"begin twice":              {begin("e", 2, false), begin("e", 3, false)},
		"one twice":                {begin("e", 2, false), chunk(listener("x", 1)), chunk(listener("x", 2))},
		"both ways":                {begin("e", 2, false), chunk(listener("x", 1)), without("x")},
		"without key":              {begin("e", 2, false), chunk(listener("", 1))},
		"unknown message":          {{}},
	} {
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int32
			refusals := make(chan *wire.Ack, 1)
			b := newBench(t, func(hello *wire.Hello, s wire.Delivery_StreamServer) error {
				if streams.Add(1) > 1 {
					if hello.Epoch != "" {
						t.Errorf("Hello after the refusal: %v", hello)
					}
					if err := send(s, begin("e", 3, true), chunk(listener("a", 1), listener("y", 1)), commit(3)); err != nil {
						return err
					}
					<-s.Context().Done()
					return nil
				}
				if err := send(s, begin("e", 1, true), chunk(listener("a", 1)), commit(1)); err != nil {
					return err
				}
				if _, err := receive(s); err != nil {
					return err
				}
				if err := send(s, wrong...); err != nil {
					return err
				}
				a, err := receive(s)
				if err != nil {
					return err
				}
				refusals <- a
				return errOver
			})
			if a := <-refusals; a.Error == "" {
				t.Errorf("answered %v", a)
			}
			testkit.Eventually(t, "everything is served", func() bool { return b.keys() == "a y" })
			if n := len(b.applied()); n != 2 {
				t.Errorf("%d updates were applied, want 2", n)
			}
		})
	}
}

// twoListeners have one port of two addresses, 127.0.0.1 and 127.0.0.2.
func twoListeners(t *testing.T) (first, second net.Listener) {
	t.Helper()
	testkit.Eventually(t, "a port is free at both addresses", func() bool {
		var err error
		if first, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		_, port, _ := strings.Cut(first.Addr().String(), ":")
		if second, err = net.Listen("tcp", "127.0.0.2:"+port); err != nil {
			first.Close()
		}
		return err == nil
	})
	return first, second
}

// TestAddresses: a standby sends on to the next address without a pause; the token is read anew each time.
func TestAddresses(t *testing.T) {
	authority := testkit.NewAuthority(t)
	var rounds atomic.Int32
	tokens := make(chan string, 100)
	standby, leader := twoListeners(t)
	delivertest.ServeOn(t, authority, standby, func(s *grpc.Server) {
		wire.RegisterDeliveryServer(s, &scripted{play: func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
			return status.Error(codes.Unavailable, "standby")
		}})
	})
	var streams atomic.Int32
	rewritten := make(chan struct{})
	delivertest.ServeOn(t, authority, leader, func(s *grpc.Server) {
		wire.RegisterDeliveryServer(s, &scripted{play: func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			tokens <- strings.Join(md.Get("authorization"), ",")
			if streams.Add(1) == 1 {
				<-rewritten
				return errOver
			}
			if err := send(s, begin("e", 1, true), chunk(listener("a", 1)), commit(1)); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}})
	})
	other := testkit.NewAuthority(t) // one that is on its way out, or in
	tokenFile := testkit.WriteFile(t, "token", []byte("first\n"))
	b := startBench(t, standby.Addr().String(), delivertest.CAFile(t, other, authority), func(c *Client) {
		c.o.TokenFile = tokenFile
		c.lookup = func(context.Context, string) ([]string, error) {
			rounds.Add(1)
			return []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2"}, nil
		}
	})
	if got := <-tokens; got != "Bearer first" {
		t.Errorf("authorization %q", got)
	}
	if err := os.WriteFile(tokenFile, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	close(rewritten)
	testkit.Eventually(t, "the leader is found", func() bool { return b.keys() == "a" })
	if got := <-tokens; got != "Bearer second" {
		t.Errorf("authorization %q", got)
	}
	if rounds.Load() != 2 { // one for each of the leader's streams
		t.Errorf("%d rounds, want 2", rounds.Load())
	}
}

// TestStrangers: nothing is told to and taken from a server that the CA does not vouch for.
func TestStrangers(t *testing.T) {
	trusted, stranger := testkit.NewAuthority(t), testkit.NewAuthority(t)
	var streams, attempts atomic.Int32
	address, _ := delivertest.Serve(t, stranger, "127.0.0.1:0", func(s *grpc.Server) {
		wire.RegisterDeliveryServer(s, &scripted{play: func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
			streams.Add(1)
			return send(s, begin("e", 1, true), chunk(listener("a", 1)), commit(1))
		}})
	})
	named, _ := delivertest.Serve(t, trusted, "127.0.0.1:0", func(s *grpc.Server) {
		wire.RegisterDeliveryServer(s, &scripted{play: func(_ *wire.Hello, s wire.Delivery_StreamServer) error {
			streams.Add(1)
			return send(s, begin("e", 1, true), chunk(listener("a", 1)), commit(1))
		}})
	})
	count := func(c *Client) {
		c.lookup = func(context.Context, string) ([]string, error) {
			attempts.Add(1)
			return []string{"127.0.0.1"}, nil
		}
	}
	b := startBench(t, address, delivertest.CAFile(t, trusted), count)
	testkit.Eventually(t, "three attempts at the stranger", func() bool { return attempts.Load() >= 3 })
	b.stop()
	attempts.Store(0)
	wrongName := startBench(t, named, delivertest.CAFile(t, trusted), count, func(c *Client) {
		c.o.Controller = strings.Replace(c.o.Controller, delivertest.Host, "elsewhere.example", 1)
	})
	testkit.Eventually(t, "three attempts at another name", func() bool { return attempts.Load() >= 3 })
	if streams.Load() > 0 || b.Ready() || wrongName.Ready() {
		t.Errorf("%d streams with strangers, ready %v %v", streams.Load(), b.Ready(), wrongName.Ready())
	}
}
