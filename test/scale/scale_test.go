package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestProcessFiles(t *testing.T) {
	// As proc(5) has it: 12 and 34 ticks.
	stat := "77 (a b) c) S 1 77 77 0 -1 4194560 100 0 0 0 12 34 5 6 20 0 9 0 1234 1000 200\n"
	if got, err := cpuTime(stat); err != nil || got != 460*time.Millisecond {
		t.Errorf("cpuTime: %s, %v", got, err)
	}
	if _, err := cpuTime("77 (a) S 1"); err == nil {
		t.Error("half a line is read as a process")
	}
	status := []byte("Name:\tmoongate\nVmHWM:\t  300 kB\nVmRSS:\t    200 kB\nRssAnon:\t 100 kB\n")
	if got := kilobytes(status, "VmRSS:"); got != 200<<10 {
		t.Errorf("VmRSS is %d", got)
	}
	if got := kilobytes(status, "RssShmem:"); got != 0 {
		t.Errorf("a line that is absent is %d", got)
	}
	dev := []byte("Inter-|   Receive |\n face |bytes packets\n    lo: 9 1 0\n  eth0: 1234 5 0 0\n")
	if got := received(dev); got != 1234 {
		t.Errorf("received is %d", got)
	}
}

func TestFigures(t *testing.T) {
	var of []time.Duration
	for i := 200; i >= 1; i-- {
		of = append(of, time.Duration(i)*time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 100, 0.99: 198, 1: 200, 0: 1} {
		if got := quantile(of, share); got != want*time.Millisecond {
			t.Errorf("the %v quantile is %s, not %d ms", share, got, want)
		}
	}
	if got := mean(of); got != 100500*time.Microsecond {
		t.Errorf("the mean is %s", got)
	}
}

// TestCostIsOfTheWindow: what a process used before is not counted, and the most is kept.
func TestCostIsOfTheWindow(t *testing.T) {
	c := cost{}
	before := usage{cpu: time.Hour, received: 1 << 30}
	c.add(before, usage{cpu: time.Hour + time.Second, resident: 9, received: 1<<30 + 4000}, 2*time.Second)
	c.add(before, usage{cpu: time.Hour + time.Second, resident: 5, received: 1<<30 + 4000}, 4*time.Second)
	if c.cores != 0.25 || c.resident != 5 || c.most != 9 || c.received != 1000 {
		t.Errorf("%+v", c)
	}
}

func version(generation int64) *gwv1.HTTPRoute {
	return &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Generation: generation}}
}

func TestTallyTellsSpecsFromStatuses(t *testing.T) {
	c := &tally{generations: map[nameOf]int64{}}
	c.routeChanged(watch.Added, version(1))
	c.routeChanged(watch.Modified, version(1))
	c.routeChanged(watch.Modified, version(2))
	c.routeChanged(watch.Modified, version(2))
	c.routeChanged(watch.Modified, version(2))
	c.routeChanged(watch.Deleted, version(2))
	c.routeChanged(watch.Added, version(1))
	early := version(1)
	early.Status.Parents = []gwv1.RouteParentStatus{{Conditions: []metav1.Condition{
		{Type: string(gwv1.RouteConditionResolvedRefs), Reason: string(gwv1.RouteReasonBackendNotFound)}}}}
	c.routeChanged(watch.Modified, early)
	if specs, statuses, early, _ := c.counts(); specs != 3 || statuses != 4 || early != 1 {
		t.Errorf("%d specs and %d statuses, %d of them early", specs, statuses, early)
	}
}

func gatewayWith(attached int32, programmed metav1.ConditionStatus) *gwv1.Gateway {
	return &gwv1.Gateway{Status: gwv1.GatewayStatus{
		Conditions: []metav1.Condition{{Type: string(gwv1.GatewayConditionProgrammed), Status: programmed}},
		Listeners:  []gwv1.ListenerStatus{{AttachedRoutes: attached}},
	}}
}

func TestSeenKeepsTheHighestCountAndLapses(t *testing.T) {
	s := &seen{}
	s.gatewayChanged(gatewayWith(4, metav1.ConditionTrue), time.Unix(1, 0))
	reached := s.await(3)
	s.gatewayChanged(gatewayWith(2, metav1.ConditionFalse), time.Unix(2, 0))
	s.gatewayChanged(gatewayWith(3, metav1.ConditionTrue), time.Unix(3, 0))
	s.gatewayChanged(gatewayWith(3, metav1.ConditionTrue), time.Unix(4, 0))
	if at := <-reached; !at.Equal(time.Unix(3, 0)) {
		t.Errorf("reached at %s", at)
	}
	if writes, most, wrong := s.take(); writes != 4 || most != 4 || len(wrong) != 1 {
		t.Errorf("%d writes, most %d, wrong %q", writes, most, wrong)
	}
	if writes, most, wrong := s.take(); writes != 0 || most != 3 || len(wrong) != 0 {
		t.Errorf("after take: %d writes, most %d, wrong %q", writes, most, wrong)
	}
}

func TestPhaseSaysWhatWasWrong(t *testing.T) {
	for name, c := range map[string]struct {
		p      phaseResult
		target int
		want   string // "" for nothing
	}{
		"right":             {phaseResult{most: 9, statuses: 9}, 9, ""},
		"right, once early": {phaseResult{most: 9, statuses: 10, early: 1}, 9, ""},
		"right teardown":    {phaseResult{start: 9, most: 9}, 0, ""},
		"too many counted":  {phaseResult{most: 10, statuses: 9}, 9, "counted 10"},
		"written twice":     {phaseResult{most: 9, statuses: 10}, 9, "took 10 writes"},
		"not all written":   {phaseResult{most: 9, statuses: 8}, 9, "took 8 writes"},
		"written at deaths": {phaseResult{start: 9, most: 9, statuses: 1}, 0, "while they were deleted"},
		"lapse":             {phaseResult{most: 9, statuses: 9, faults: []string{"not programmed"}}, 9, "not programmed"},
	} {
		if err := c.p.wrong(c.target); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParentsMustBeOneAndOurs(t *testing.T) {
	w := &world{controller: "us"}
	entry := func(controller gwv1.GatewayController, accepted metav1.ConditionStatus, generation int64) gwv1.RouteParentStatus {
		return gwv1.RouteParentStatus{ControllerName: controller, ParentRef: gwv1.ParentReference{Name: home},
			Conditions: []metav1.Condition{{Type: string(gwv1.RouteConditionAccepted), Status: accepted, ObservedGeneration: generation}}}
	}
	good := entry("us", metav1.ConditionTrue, 2)
	for name, c := range map[string]struct {
		parents []gwv1.RouteParentStatus
		ok      bool
	}{
		"one":       {[]gwv1.RouteParentStatus{good}, true},
		"none":      {nil, false},
		"two":       {[]gwv1.RouteParentStatus{good, good}, false},
		"foreign":   {[]gwv1.RouteParentStatus{entry("them", metav1.ConditionTrue, 2)}, false},
		"refused":   {[]gwv1.RouteParentStatus{entry("us", metav1.ConditionFalse, 2)}, false},
		"of before": {[]gwv1.RouteParentStatus{entry("us", metav1.ConditionTrue, 1)}, false},
	} {
		r := version(2)
		r.Status.Parents = c.parents
		if err := w.checkParents(r); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPropagationCountsWrongAnswers(t *testing.T) {
	p := &propagation{}
	p.count(http.StatusNotFound, nil, http.StatusNotFound)
	if p.err() != nil {
		t.Error(p.err())
	}
	p.count(http.StatusServiceUnavailable, nil, http.StatusNotFound)
	p.count(0, errors.New("reset"), http.StatusOK)
	if p.wrong != 2 || p.err() == nil || !strings.Contains(p.err().Error(), "503") {
		t.Errorf("%d, %v", p.wrong, p.err())
	}
}

func TestEditsMustBeSeenAndNeverFail(t *testing.T) {
	for name, c := range map[string]struct {
		made    int
		answers [][2]string // port, header
		ok      bool
	}{
		"each":            {2, [][2]string{{"8080", "yes"}, {"8081", ""}, {"8081", ""}, {"8080", "yes"}}, true},
		"two in one":      {3, [][2]string{{"8080", "yes"}, {"8081", ""}}, true},
		"never":           {2, [][2]string{{"8080", "yes"}, {"8080", "yes"}}, false},
		"the last is not": {2, [][2]string{{"8080", "yes"}, {"8081", ""}}, false},
		"mixed":           {1, [][2]string{{"8080", "yes"}, {"8081", "yes"}, {"8081", ""}}, false},
	} {
		e := &edits{made: c.made}
		for _, a := range c.answers {
			e.answer(http.StatusOK, a[0], a[1], nil)
		}
		if err := e.err(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := &edits{made: 1}
	e.answer(http.StatusOK, "8080", "yes", nil)
	e.answer(http.StatusInternalServerError, "8081", "", nil)
	e.answer(http.StatusOK, "8081", "", nil)
	if e.err() == nil {
		t.Error("a failure passes")
	}
}

func TestChurnMayNotWriteMoreThanChanges(t *testing.T) {
	for _, c := range []struct {
		churn
		ok bool
	}{
		{churn{endpoints: 9, routes: 5, specs: 5, statuses: 5}, true},
		{churn{routes: 5, specs: 5, statuses: 4}, true}, // two changes in a row
		{churn{routes: 5, specs: 5, statuses: 6}, false},
		{churn{routes: 5, specs: 6, statuses: 5}, false},
		{churn{routes: 5, specs: 5, statuses: 5, gateway: 1}, false},
		{churn{routes: 5, specs: 5, statuses: 5, wrong: []string{"lapse"}}, false},
	} {
		if err := c.err(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.churn, err)
		}
	}
}

func TestEachDoesAllAndStopsAtAnError(t *testing.T) {
	var done atomic.Int64
	if err := each(t.Context(), 100, 7, func(context.Context, int) error { done.Add(1); return nil }); err != nil || done.Load() != 100 {
		t.Errorf("%d done, %v", done.Load(), err)
	}
	broken := errors.New("broken")
	if err := each(t.Context(), 100, 1, func(_ context.Context, i int) error {
		if i == 3 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

func TestFakeAddressesDiffer(t *testing.T) {
	all := map[string]bool{}
	for i := range 1 << 17 {
		all[fakeAddress(i)] = true
	}
	if len(all) != 1<<17 || !all["198.18.0.0"] || !all["198.19.255.255"] {
		t.Errorf("%d addresses", len(all))
	}
}

// TestCertificatesAreOnListenersOfSets: as many as asked for, each once, on no more listeners in a set than it may have.
func TestCertificatesAreOnListenersOfSets(t *testing.T) {
	dir := t.TempDir()
	c := &certified{number: 200, perListener: 2}
	if err := c.write(dir, 8443); err != nil {
		t.Fatal(err)
	}
	secrets, listeners := 0, 0
	for i := range 2 {
		content, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("set%d.yaml", i)))
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(content), "protocol: HTTPS")
		if n > listenersPerSet {
			t.Errorf("set %d has %d listeners", i, n)
		}
		listeners, secrets = listeners+n, secrets+strings.Count(string(content), "kind: Secret")
	}
	if secrets != 200 || listeners != 100 || c.host(199) != "c199.l99.example.com" {
		t.Errorf("%d certificates on %d listeners, the last for %s", secrets, listeners, c.host(199))
	}
}

func TestSetsMustBeProgrammedAndCount(t *testing.T) {
	condition := func(name gwv1.ListenerSetConditionType, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: string(name), Status: status}
	}
	accepted, programmed := condition(gwv1.ListenerSetConditionAccepted, metav1.ConditionTrue), condition(gwv1.ListenerSetConditionProgrammed, metav1.ConditionTrue)
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		routes     []int32 // of each listener
		ok         bool
	}{
		"right":          {[]metav1.Condition{accepted, programmed}, []int32{routesPerSet}, true},
		"not programmed": {[]metav1.Condition{accepted, condition(gwv1.ListenerSetConditionProgrammed, metav1.ConditionFalse)}, []int32{routesPerSet}, false},
		"not accepted":   {[]metav1.Condition{programmed}, []int32{routesPerSet}, false},
		"too few routes": {[]metav1.Condition{accepted, programmed}, []int32{routesPerSet - 1}, false},
		"no listener":    {[]metav1.Condition{accepted, programmed}, nil, false},
	} {
		set := &gwv1.ListenerSet{Status: gwv1.ListenerSetStatus{Conditions: c.conditions}}
		for _, n := range c.routes {
			set.Status.Listeners = append(set.Status.Listeners, gwv1.ListenerEntryStatus{AttachedRoutes: n})
		}
		if err := checkSet(set); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChangesAreOfRoutesThatAreThere: those of ListenerSets share Services.
func TestChangesAreOfRoutesThatAreThere(t *testing.T) {
	s := &settings{prefix: "sets", namespaces: 2, perSpace: 2 * routesPerSet, perService: routesPerSet}
	services := map[string]bool{}
	for range 1000 {
		namespace, route, service := s.any()
		var i, of int
		if _, err := fmt.Sscanf(route+" "+service, "app-%d app-%d", &i, &of); err != nil || i/routesPerSet != of || i >= s.perSpace ||
			namespace != "sets-0" && namespace != "sets-1" {
			t.Fatalf("%s/%s with %s, %v", namespace, route, service, err)
		}
		services[service] = true
	}
	if len(services) != 2 {
		t.Errorf("%d Services", len(services))
	}
}

func TestRatiosAreOfRounds(t *testing.T) {
	one := &certified{costs: []time.Duration{100, 200, 100}}
	many := &certified{costs: []time.Duration{120, 200, 110}}
	if got := many.ratios(one); !slices.Equal(got, []float64{1, 1.1, 1.2}) {
		t.Errorf("%v", got)
	}
}

func TestScheduledGrowsWithWork(t *testing.T) {
	before, err := scheduled(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Millisecond); time.Now().Before(until); {
	}
	if after, err := scheduled(os.Getpid()); err != nil || after <= before {
		t.Errorf("%s after %s, %v", after, before, err)
	}
	if _, err := scheduled(-1); err == nil {
		t.Error("no process is taken for one")
	}
}

func TestReportIsMarkdown(t *testing.T) {
	r := &report{head: []string{"here"}}
	r.row("work", "1", "2")
	var b strings.Builder
	if err := r.print(&b); err != nil || !strings.Contains(b.String(), "here\n\n| work | measured | aim |\n| --- | --- | --- |\n| work | 1 | 2 |\n") {
		t.Errorf("%v: %s", err, b.String())
	}
}
