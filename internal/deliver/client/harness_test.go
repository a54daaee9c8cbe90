package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const testGateway = "n/gw"

// engine stands for the proxy: it keeps what it is told.
type engine struct {
	mu        sync.Mutex
	resources map[config.ID]*config.Resource
	updates   []*config.Update
	rebinds   int
	listeners map[string]*proxy.ListenerError // that do not serve
	rejects   map[config.ID]error
}

func (e *engine) apply(u *config.Update) proxy.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.updates = append(e.updates, u)
	result := proxy.Result{Generation: u.Generation, Rejected: map[config.ID]error{}}
	for _, r := range u.Upserts {
		if err := e.rejects[r.ID()]; err != nil {
			result.Rejected[r.ID()] = err
			continue
		}
		e.resources[r.ID()] = r
	}
	for _, id := range u.Removals {
		if e.resources[id] == nil {
			panic("removal of what is not there: " + id.String())
		}
		delete(e.resources, id)
	}
	result.Listeners = e.failing()
	return result
}

func (e *engine) rebind() proxy.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rebinds++
	return proxy.Result{Listeners: e.failing()}
}

func (e *engine) failing() map[string]*proxy.ListenerError {
	out := map[string]*proxy.ListenerError{}
	for key, err := range e.listeners {
		if e.resources[config.ID{Kind: config.KindListener, Key: key}] != nil {
			out[key] = err
		}
	}
	return out
}

// keys are what the engine has, in order.
func (e *engine) keys() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, id := range slices.SortedFunc(maps.Keys(e.resources), config.CompareID) {
		out = append(out, id.Key)
	}
	return strings.Join(out, " ")
}

func (e *engine) applied() []*config.Update {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.updates)
}

func listener(key string, port uint32) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: key, Gateway: testGateway, Port: port}}}
}

func begin(epoch string, generation uint64, full bool) *wire.ToProxy {
	return &wire.ToProxy{Message: &wire.ToProxy_Begin{Begin: &wire.Begin{Epoch: epoch, Generation: generation, Full: full}}}
}

func chunk(upserts ...*config.Resource) *wire.ToProxy {
	return &wire.ToProxy{Message: &wire.ToProxy_Chunk{Chunk: &wire.Chunk{Upserts: upserts}}}
}

func without(keys ...string) *wire.ToProxy {
	c := &wire.Chunk{}
	for _, key := range keys {
		c.Removals = append(c.Removals, &wire.ResourceId{Kind: uint32(config.KindListener), Key: key})
	}
	return &wire.ToProxy{Message: &wire.ToProxy_Chunk{Chunk: c}}
}

func commit(generation uint64) *wire.ToProxy {
	return &wire.ToProxy{Message: &wire.ToProxy_Commit{Commit: &wire.Commit{Generation: generation}}}
}

// scripted is a controller that does what a test says with each stream.
type scripted struct {
	wire.UnimplementedDeliveryServer
	play func(hello *wire.Hello, s wire.Delivery_StreamServer) error
}

func (c *scripted) Stream(s wire.Delivery_StreamServer) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	return c.play(m.GetHello(), s)
}

var errOver = errors.New("the script is over")

// send plays messages and answers the Ack that follows, if wanted.
func send(s wire.Delivery_StreamServer, messages ...*wire.ToProxy) error {
	for _, m := range messages {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func receive(s wire.Delivery_StreamServer) (*wire.Ack, error) {
	m, err := s.Recv()
	if err != nil {
		return nil, err
	}
	if m.GetAck() == nil {
		return nil, fmt.Errorf("%v is no Ack", m)
	}
	return m.GetAck(), nil
}

// bench is a Client with an engine, and a controller.
type bench struct {
	*Client
	*engine
	stop func()
}

// newBench starts a Client; change may change its Options before.
func newBench(t *testing.T, play func(*wire.Hello, wire.Delivery_StreamServer) error, change ...func(*Client)) *bench {
	t.Helper()
	authority := testkit.NewAuthority(t)
	address, _ := delivertest.Serve(t, authority, "127.0.0.1:0", func(s *grpc.Server) {
		wire.RegisterDeliveryServer(s, &scripted{play: play})
	})
	return startBench(t, address, delivertest.CAFile(t, authority), change...)
}

func startBench(t *testing.T, address, caFile string, change ...func(*Client)) *bench {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{resources: map[config.ID]*config.Resource{}}
	c := New(Options{Controller: net.JoinHostPort(delivertest.Host, port), CAFile: caFile, TokenFile: testkit.WriteFile(t, "token", []byte("token\n")),
		Gateway: testGateway, Version: "test", Apply: e.apply, Rebind: e.rebind})
	c.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	b := &bench{c, e, func() { cancel(); <-done }}
	t.Cleanup(b.stop)
	return b
}
