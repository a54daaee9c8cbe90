// Command scale measures on the test cluster what a cluster's size and its changes cost: how soon
// a route is served and counted, whether a change is noticed, and what controller and
// proxies hold and use with thousands of routes. It exists because these are promises in
// figures, and fails when an answer, a count or a status was wrong, never because a figure is
// high. It must never import the product: what it does, a cluster's administrator could do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	class    string
	only     string
	attached int
	routes   int
	changes  int
	// prefix is of the names of the load's namespaces.
	prefix     string
	namespaces int
	perSpace   int
	perService int // how many of a namespace's routes lead to one Service
	underChurn int
	settle     time.Duration
	window     time.Duration
	workers    int

	setSpaces    int
	setsPerSpace int

	moongate     string
	certificates int
	perListener  int
	handshakes   int
	rounds       int
}

type test struct {
	name string
	run  func(context.Context, *world, *settings, *report) error
	// alone needs no cluster, and gets no world.
	alone bool
}

// tests run in this order. Each finds no routes; sets leaves its own. What sets shows of memory holds only where it is the first one on a cluster.
var tests = []test{
	{"certificates", measureCertificates, true},
	{"attached", measureAttached, false},
	{"propagation", measurePropagation, false},
	{"change", measureChange, false},
	{"load", measureLoad, false},
	{"sets", measureSets, false},
}

func main() {
	s := settings{prefix: "load", perService: 1}
	flag.StringVar(&s.class, "class", "moongate", "the GatewayClass")
	flag.StringVar(&s.only, "only", "", "tests to run, with commas between: certificates, attached, propagation, change, load, sets; empty is all")
	flag.IntVar(&s.attached, "attached", 1000, "routes of the test attached")
	flag.IntVar(&s.routes, "routes", 3000, "routes of the test propagation, one after another")
	flag.IntVar(&s.changes, "changes", 20, "edits of the test change")
	flag.IntVar(&s.namespaces, "namespaces", 50, "namespaces of the test load")
	flag.IntVar(&s.perSpace, "per-namespace", 100, "routes in each of them")
	flag.IntVar(&s.setSpaces, "set-namespaces", 50, "namespaces of the test sets")
	flag.IntVar(&s.setsPerSpace, "sets-per-namespace", 50, "ListenerSets in each of them, with 16 routes each")
	flag.IntVar(&s.underChurn, "under-churn", 100, "routes of propagation while the load is there and changes")
	flag.DurationVar(&s.settle, "settle", 20*time.Second, "how long to wait after the load was made")
	flag.DurationVar(&s.window, "window", time.Minute, "how long to measure under churn")
	flag.StringVar(&s.moongate, "moongate", "bin/moongate", "the program, for the test certificates")
	flag.IntVar(&s.certificates, "certificates", 10000, "certificates of the test certificates, on one port")
	flag.IntVar(&s.perListener, "per-listener", 64, "certificates of each of its listeners")
	flag.IntVar(&s.handshakes, "handshakes", 2000, "handshakes of a round")
	flag.IntVar(&s.rounds, "rounds", 9, "rounds, in each of which both processes are measured")
	flag.IntVar(&s.workers, "workers", 8, "how many objects are written side by side where the order is no matter")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context) error {
	only := strings.FieldsFunc(s.only, func(r rune) bool { return r == ',' })
	for _, name := range only {
		if !slices.ContainsFunc(tests, func(t test) bool { return t.name == name }) {
			return fmt.Errorf("there is no test %q", name)
		}
	}
	var w *world
	r := &report{}
	r.machine()
	for _, t := range tests {
		if len(only) > 0 && !slices.Contains(only, t.name) {
			continue
		}
		if w == nil && !t.alone {
			var err error
			if w, err = open(ctx, s.class); err != nil {
				return err
			}
			r.cluster(ctx, w)
		}
		begin := time.Now()
		err := t.run(ctx, w, s, r)
		fmt.Fprintf(os.Stderr, "%s: %s\n", t.name, time.Since(begin).Round(time.Second))
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", t.name, err), r.print(os.Stdout))
		}
	}
	return r.print(os.Stdout)
}
