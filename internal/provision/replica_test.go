package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// replica is a Provisioner with what it reported.
type replica struct {
	*Provisioner
	mu      sync.Mutex
	reports map[string]report
	history map[string][]report
	pods    map[string]map[string]string
	order   []string
	// problems are "<namespace>/<name>: <what>" as Options.Problem was called.
	problems []string
	ca       string
}

// startReplica watches, and waits until everything was listed. Nobody leads yet.
func startReplica(t *testing.T, s *server, namespaces ...string) *replica {
	t.Helper()
	return startReplicaAfter(t, s, skip, namespaces...)
}

// startReplicaAfter is startReplica with another limit for what cannot be listed.
func startReplicaAfter(t *testing.T, s *server, limit time.Duration, namespaces ...string) *replica {
	t.Helper()
	r := &replica{reports: map[string]report{}, history: map[string][]report{}, pods: map[string]map[string]string{}, ca: "certificate"}
	p, err := New(Options{
		Config: s.config(), ControllerName: settings.ControllerName, Image: settings.Image, ControllerAddress: settings.ControllerAddress, Namespaces: namespaces,
		CAPEM: func() []byte { r.mu.Lock(); defer r.mu.Unlock(); return []byte(r.ca) },
		Report: func(namespace, name string, i *translate.Infrastructure, ready []string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports[namespace+"/"+name] = report{infrastructure: i, ready: ready}
			r.history[namespace+"/"+name] = append(r.history[namespace+"/"+name], report{infrastructure: i, ready: ready})
			r.order = append(r.order, namespace+"/"+name)
		},
		Problem: func(namespace, name, what string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.problems = append(r.problems, namespace+"/"+name+": "+what)
		},
		Pods: func(namespace, name string, uids map[string]string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.pods[namespace+"/"+name] = uids
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Provisioner, p.skip, p.settleTime = p, limit, 0
	run(t, p.Watch)
	select {
	case <-p.listed:
	case <-time.After(patience):
		t.Fatal("not everything was listed")
	}
	return r
}

// run runs f until the test or the function that it answers ends it.
func run(t *testing.T, f func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}

func (r *replica) last(gateway string) report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports[gateway]
}

// reportsOf are all that there were of a Gateway.
func (r *replica) reportsOf(gateway string) []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history[gateway])
}

func (r *replica) waiting(gateway string) string {
	if i := r.last(gateway).infrastructure; i != nil {
		return i.Waiting
	}
	return ""
}

const patience = time.Minute

var web = gatewayName{"shop", "web"}

func specOf(g gatewayName, edit func(*translate.ProxySpec)) translate.ProxySpecChange {
	p := &translate.ProxySpec{Namespace: g.namespace, Name: g.name, UID: types.UID("uid-of-" + g.name), Class: "moongate", Ports: []translate.ProxyPort{{Port: 80}}}
	if edit != nil {
		edit(p)
	}
	return translate.ProxySpecChange{Namespace: g.namespace, Name: g.name, Spec: p}
}

// settle takes a ProxySpec and reconciles once, in this goroutine, once the watches have come up with the server.
func (r *replica) settle(t *testing.T, s *server, change translate.ProxySpecChange) error {
	t.Helper()
	r.Update([]translate.ProxySpecChange{change})
	return r.once(t, s, gatewayName{change.Namespace, change.Name})
}

func (r *replica) once(t *testing.T, s *server, g gatewayName) error {
	t.Helper()
	r.caughtUp(t, s)
	_, err := r.reconcile(t.Context(), g)
	return err
}

// caughtUp waits until the store holds what the server does.
func (r *replica) caughtUp(t *testing.T, s *server) {
	t.Helper()
	own, err := labels.Parse(ownSelector)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the store has caught up", func() bool {
		var there, here []string
		for _, name := range s.names() {
			have := labels.Set{}
			all, _ := s.at(name, "metadata", "labels").(tree)
			for key, value := range all {
				have[key] = fmt.Sprint(value)
			}
			if own.Matches(have) {
				there = append(there, name+" "+fmt.Sprint(s.at(name, "metadata", "resourceVersion")))
			}
		}
		for _, g := range r.store.names() {
			for n, object := range r.store.of(g) {
				here = append(here, resources[n.kind].resource+"/"+g.namespace+"/"+n.name+" "+object.GetResourceVersion())
			}
		}
		slices.Sort(there)
		slices.Sort(here)
		return slices.Equal(slices.DeleteFunc(there, func(name string) bool { return strings.Contains(name, "foreign") }), here)
	})
}

func addressesOf(values ...string) []gwv1.GatewaySpecAddress {
	var all []gwv1.GatewaySpecAddress
	kind := gwv1.IPAddressType
	for _, value := range values {
		all = append(all, gwv1.GatewaySpecAddress{Type: &kind, Value: value})
	}
	return all
}

// TestFailureOnceInLog checks that what fails again and again in the same way is one line, and the end of a namespace none.
func TestFailureOnceInLog(t *testing.T) {
	var log bytes.Buffer
	p, err := New(Options{Config: &rest.Config{Host: "192.0.2.1"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ending := apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "because it is being terminated")
	ending.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
	unanswered := func(port int) error { // as client-go returns it
		return fmt.Errorf("Deployment n/g: %w", &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: syscall.ECONNRESET}})
	}
	g, other, quota := gatewayName{"n", "g"}, gatewayName{"n", "other"}, errors.New("quota")
	for i, c := range []struct {
		of    gatewayName
		err   error
		lines int // by then
	}{
		{g, quota, 1}, {g, errors.New("quota"), 1}, {other, quota, 2}, {g, errors.New("taken"), 3}, {g, quota, 4},
		{g, nil, 4}, {g, quota, 5}, {other, &apierrors.StatusError{ErrStatus: *ending}, 5}, {other, quota, 5},
		{g, unanswered(40001), 6}, {g, unanswered(40002), 6}, {g, quota, 7},
	} {
		p.noteFailure(c.of, c.err)
		if n := strings.Count(log.String(), "cannot provision"); n != c.lines {
			t.Errorf("step %d: %d lines, want %d: %s", i, n, c.lines, &log)
		}
	}
	if errors, failing := p.Failures(); errors != 10 || failing != 2 {
		t.Errorf("%d tries have failed, of which those of %d Gateways last; want 10 and 2", errors, failing)
	}
	p.noteFailure(g, nil)
	if errors, failing := p.Failures(); errors != 10 || failing != 1 {
		t.Errorf("after one has succeeded: %d, %d; want 10 and 1", errors, failing)
	}
}
