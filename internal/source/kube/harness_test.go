package kube

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// patient bounds what should happen at once, for machines that are busy.
const patient = time.Minute

// consumer holds what the Changes of one Run add up to.
type consumer struct {
	*Source
	t       testing.TB
	changes chan Change
	end     func()
	log     *testkit.Log

	objects   map[kind.ObjectKey]metav1.Object
	upserts   map[kind.ObjectKey]int
	observed  map[kind.ObjectKey]int
	installed *Installed
	told      []Change
}

// consume runs a Source until the test ends.
func consume(t testing.TB, s *apiServer, adjust ...func(*Source)) *consumer {
	t.Helper()
	return follow(t, s.config(), adjust...)
}

func follow(t testing.TB, config *rest.Config, adjust ...func(*Source)) *consumer {
	t.Helper()
	log := &testkit.Log{}
	source, err := New(Options{Config: config, Version: "1.2", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adjust {
		a(source)
	}
	c := &consumer{
		Source: source, t: t, log: log, changes: make(chan Change), objects: map[kind.ObjectKey]metav1.Object{},
		upserts: map[kind.ObjectKey]int{}, observed: map[kind.ObjectKey]int{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- source.Run(ctx, func(change Change) {
			select {
			case c.changes <- change:
			case <-ctx.Done():
			}
		})
	}()
	var once sync.Once
	c.end = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patient):
				t.Error("Run does not end")
			}
		})
	}
	t.Cleanup(c.end)
	return c
}

// next takes the next Change in.
func (c *consumer) next() Change {
	c.t.Helper()
	select {
	case change := <-c.changes:
		c.take(change)
		return change
	case <-time.After(patient):
		c.t.Fatalf("nothing comes; waiting for %v; log:\n%s", c.Waiting(), c.log)
		return Change{}
	}
}

func (c *consumer) take(change Change) {
	c.t.Helper()
	if change.Full != (len(c.told) == 0) {
		c.t.Errorf("Change %d: Full is %v", len(c.told), change.Full)
	}
	c.told = append(c.told, change)
	for _, o := range change.Upserts {
		id := idOf(c.t, o)
		c.objects[id] = o
		c.upserts[id]++
	}
	for _, id := range change.Deletes {
		if _, ok := c.objects[id]; !ok {
			c.t.Errorf("%v is deleted, which was not there", id)
		}
		delete(c.objects, id)
	}
	for _, id := range change.Observed {
		c.observed[id]++
	}
	if change.Installed != nil {
		c.installed = change.Installed
	}
}

// until takes Changes in until the condition holds.
func (c *consumer) until(what string, holds func() bool) {
	c.t.Helper()
	deadline := time.After(patient)
	for !holds() {
		select {
		case change := <-c.changes:
			c.take(change)
		case <-deadline:
			c.t.Fatalf("not within %v: %s; log:\n%s", patient, what, c.log)
		}
	}
}

func idOf(t testing.TB, o metav1.Object) kind.ObjectKey {
	if u, ok := o.(*kind.Undecoded); ok {
		return kindNamed(u.Kind).key(nameOf(u))
	}
	t.Helper()
	gvks, _, err := scheme.ObjectKinds(o.(runtime.Object))
	if err != nil {
		t.Fatal(err)
	}
	return kind.ObjectKey{Group: gvks[0].Group, Kind: gvks[0].Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

const gatewayGroup = "gateway.networking.k8s.io"

func routeID(n string) kind.ObjectKey {
	return kind.ObjectKey{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: "team", Name: n}
}
func serviceID(n string) kind.ObjectKey {
	return kind.ObjectKey{Kind: "Service", Namespace: "team", Name: n}
}
func secretID(n string) kind.ObjectKey {
	return kind.ObjectKey{Kind: "Secret", Namespace: "team", Name: n}
}

type fields = map[string]any

func (s *apiServer) putRoute(n, host string, more fields) {
	f := fields{"spec": fields{"hostnames": []any{host}}}
	for k, v := range more {
		f[k] = v
	}
	s.put(gatewayGroup+"/httproutes", "HTTPRoute", "team", n, f)
}

func (s *apiServer) putService(n string, port int64) {
	s.put("services", "Service", "team", n, fields{"spec": fields{"type": "ClusterIP", "clusterIP": "10.96.0.9", "ports": []any{fields{"port": port, "protocol": "TCP"}}}})
}

func (s *apiServer) putSecret(n, value string) {
	s.put("secrets", "Secret", "team", n, fields{"type": "Opaque", "data": fields{"k": value}})
}

func kindNamed(n string) *watchedKind {
	for _, k := range kinds {
		if k.Name == n {
			return k
		}
	}
	return nil
}
