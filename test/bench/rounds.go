//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/sample"
)

// series is what one contender showed in all rounds of a workload.
type series struct {
	label      string
	values     []float64 // CPU microseconds per request, CPU milliseconds per GiB, or KiB per connection
	rate       []float64 // requests per second
	p50, p99   []float64 // milliseconds
	proxyBusy  []float64 // share of the proxy CPU that the proxy used
	loadBusy   []float64 // share of the load CPU that generator and origin used
	others     []float64 // share of the proxy CPU that somebody else used
	bytes      int       // of a request and its response, where values and rate are per GiB and MiB
	contended  bool      // others are expected to use the CPU
	errors     int
	firstError string
}

func (s *series) add(r *load.Result) {
	window := float64(r.Window)
	if s.bytes > 0 {
		moved := float64(r.Requests) * float64(s.bytes)
		s.values = append(s.values, float64(r.Proxy)/1e6/(moved/(1<<30)))
		s.rate = append(s.rate, moved/(1<<20)/r.Window.Seconds())
	} else {
		s.values = append(s.values, float64(r.Proxy)/float64(r.Requests)/1e3)
		s.rate = append(s.rate, float64(r.Requests)/r.Window.Seconds())
	}
	s.p50 = append(s.p50, float64(r.P50)/float64(time.Millisecond))
	s.p99 = append(s.p99, float64(r.P99)/float64(time.Millisecond))
	s.proxyBusy = append(s.proxyBusy, float64(r.Proxy)/window)
	s.loadBusy = append(s.loadBusy, float64(r.Load+r.Origin)/window)
	s.others = append(s.others, float64(r.Others)/window)
	if r.Errors > 0 && s.errors == 0 {
		s.firstError = r.FirstError
	}
	s.errors += r.Errors
}

func (s *series) summary() sample.Summary { return sample.Summarize(s.values) }

// spec is the load for one window against a contender.
func (t *traffic) spec(b *bench, c *contender) *load.Spec {
	spec := &load.Spec{
		Address: t.address(c), Exchange: t.exchange, Message: t.message, Request: t.request, BodySize: t.bodySize,
		Connections: b.connections, PerRequest: t.perRequest, Burst: t.burst, Rate: t.rate,
		Warmup: b.warmup, Window: b.window,
		Proxy: c.pids, Origin: []int{b.originID}, ProxyCPU: b.proxyCPU,
	}
	if t.secure {
		spec.ServerName = apiHost
	}
	if t.http2 {
		spec.Streams, spec.Connections = b.streams, b.connections/b.streams
	}
	return spec
}

// entry is one side of a comparison.
type entry struct {
	label     string
	traffic   *traffic
	contender *contender
}

// against is t against each of the contenders.
func (t *traffic) against(contenders []*contender) []entry {
	var runs []entry
	for _, c := range contenders {
		runs = append(runs, entry{c.name, t, c})
	}
	return runs
}

// measureInTurns measures the sides of a comparison in turns, in an order that changes every round.
func (b *bench) measureInTurns(runs []entry) ([]*series, error) {
	all := make([]*series, len(runs))
	for i, r := range runs {
		all[i] = &series{label: r.label, bytes: r.traffic.bytes, contended: r.traffic.contended}
	}
	for round := range b.rounds {
		for _, i := range order(len(runs), round) {
			wait := b.beginProfile(runs[i].contender)
			result, err := b.measure(runs[i].traffic.spec(b, runs[i].contender))
			if err = errors.Join(err, wait()); err != nil {
				return nil, fmt.Errorf("%s: %w", runs[i].label, err)
			}
			all[i].add(result)
			b.failures += result.Errors
		}
	}
	return all, nil
}

// order is the turn of n contenders in a round: rotated by one every second round and
// backwards in odd rounds, so that nobody always follows the same neighbour.
func order(n, round int) []int {
	turn := make([]int, n)
	for i := range turn {
		turn[i] = (i + round/2) % n
		if round%2 == 1 {
			turn[i] = (n - 1 - i + round/2) % n
		}
	}
	return turn
}

// verify checks what the workload asks the contenders for.
func (t *traffic) verify(b *bench, contenders []*contender) error {
	if t.exchange == load.Datagrams {
		return b.verifyDatagrams(contenders)
	}
	if t.variant.Layer4 {
		return b.verifyLayer4(contenders)
	}
	return b.verify(contenders)
}

// run measures a traffic workload for all contenders.
func (t *traffic) run(b *bench) (err error) {
	contenders, err := b.startAll(t)
	if err != nil {
		return err
	}
	if err := t.verify(b, contenders); err != nil {
		return err
	}
	if t.contended {
		var spinner *roleProcess
		if spinner, err = b.startRole("role-spin", b.proxyCPU, struct{}{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, spinner.stop()) }()
	}
	alone, err := b.loadAlone(t)
	if err != nil {
		return fmt.Errorf("load without a proxy: %w", err)
	}
	all, err := b.measureInTurns(t.against(contenders))
	if err != nil {
		return err
	}
	if t.variant.AccessLog {
		if err := b.checkLogs(contenders, all); err != nil {
			return err
		}
	}
	b.printTraffic(t, all, alone)
	unit := "µs"
	if t.bytes > 0 {
		unit = "ms/GiB"
	}
	b.summarize(t.title, unit, all)
	return stopAll(contenders)
}

// loadAlone is the rate that generator and origin reach without a proxy between them, the
// ceiling of the workload; 0 where the origin cannot play the proxy's part.
func (b *bench) loadAlone(t *traffic) (float64, error) {
	if t.secure || t.perRequest || t.http2 && t.exchange == load.Requests { // the origin speaks no HTTP/2 but gRPC
		return 0, nil
	}
	plain := netip.AddrPortFrom(loopback, b.origin.HTTP)
	direct := &contender{child: &child{name: "origin"}, plain: plain, tcp: plain, udp: netip.AddrPortFrom(loopback, b.origin.UDP), grpc: netip.AddrPortFrom(loopback, b.origin.GRPC)}
	spec := t.spec(b, direct)
	spec.Warmup, spec.Window = 200*time.Millisecond, time.Second
	result, err := b.measure(spec)
	if err != nil {
		return 0, err
	}
	alone := series{bytes: t.bytes}
	alone.add(result)
	return alone.rate[0], nil
}

// runRoutes compares Moongate with one measured route and with many others beside it.
func (b *bench) runRoutes(t *traffic) error {
	if !b.hasMoongate() {
		return nil
	}
	few, err := b.start("moongate", variant{})
	if err != nil {
		return err
	}
	many, err := b.start("moongate", variant{Routes: b.routes})
	if err != nil {
		return err
	}
	contenders := []*contender{few, many}
	if err := b.verify(contenders); err != nil {
		return err
	}
	all, err := b.measureInTurns(t.against(contenders))
	if err != nil {
		return err
	}
	all[0].label, all[1].label = "2 routes", fmt.Sprintf("%d routes", b.routes+2)
	b.printRatios("Many routes: A, Moongate only", "routes", all)
	return stopAll(contenders)
}
