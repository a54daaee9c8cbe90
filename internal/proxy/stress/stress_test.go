package stress

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

var (
	seedFlag     = flag.Uint64("stress.seed", 0, "seed of the random choices; 0 chooses one")
	durationFlag = flag.Duration("stress.duration", 45*time.Second, "how long clients, backends and edits go on")
	clientsFlag  = flag.Int("stress.clients", 24, "clients at a time")
	classesFlag  = flag.String("stress.classes", "", "the classes of paths that are asked for, separated by commas; empty is all")
	failuresFlag = flag.Int64("stress.failures", 1, "how many failures end the run")
)

// run is one run of the test.
type run struct {
	t        *testing.T
	seed     uint64
	classes  []string
	start    time.Time
	register register
	counts   counts
	calm     atomic.Bool // nobody does any harm any more
	failures atomic.Int64
	stop     context.Context // ends with the storm
	end      context.CancelFunc

	proxy      *proxy.Proxy
	metrics    *observe.Metrics
	accessLog  *tail
	generation uint64

	port, securePort, otherPort int

	services           []*service
	certificates       []*config.Resource // for the listener: two that take turns
	authority          []byte
	backendCertificate tls.Certificate
	sessions           tls.ClientSessionCache
}

func (s *run) count(what string) { s.counts.add(what) }

// going reports whether the storm goes on.
func (s *run) going() bool { return s.stop.Err() == nil }

// pause waits, and reports whether the storm goes on.
func (s *run) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.stop.Done():
		return false
	}
}

// fail ends the run; c is whose request is concerned, nil where that is not known.
func (s *run) fail(c *conversation, format string, args ...any) {
	n := s.failures.Add(1)
	if n >= *failuresFlag {
		s.end()
	}
	if n > max(*failuresFlag, 3) { // they follow from those before, maybe
		return
	}
	story := ""
	if c != nil {
		time.Sleep(200 * time.Millisecond) // for the access log, and what others have to tell
		story = "\n" + c.String() + s.accessLog.find(c.name())
	}
	s.t.Errorf("after %v: %s%s\nrun again with -stress.seed=%d", time.Since(s.start).Round(time.Millisecond), fmt.Sprintf(format, args...), story, s.seed)
}

// wrongBytes is fail where bytes of another's came.
func (s *run) wrongBytes(c *conversation, foreign uint64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if other := s.register.find(foreign); other != nil && other != c {
		text += "\nwhich belong to " + other.String() + s.accessLog.find(other.name())
	}
	s.fail(c, "%s", text)
}

// tail keeps the end of the access log.
type tail struct {
	mu    sync.Mutex
	lines [8192][]byte
	next  int
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		l.lines[l.next%len(l.lines)] = bytes.Clone(line)
		l.next++
	}
	return len(p), nil
}

// find returns the lines that have the text.
func (l *tail) find(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for i := range l.lines {
		if line := l.lines[(l.next+i)%len(l.lines)]; bytes.Contains(line, []byte(text)) {
			b.WriteString("  access log: ")
			b.Write(line)
		}
	}
	return b.String()
}

func (s *run) newCertificates() {
	for _, name := range []string{"one", "two"} {
		chain, key := testkit.Certificate{Name: name, Hosts: []string{hostname}}.PEM(s.t)
		s.certificates = append(s.certificates, &config.Resource{Kind: &config.Resource_Certificate{
			Certificate: &config.Certificate{Key: "front", ChainPem: chain, KeyPem: key}}})
	}
	chain, key := testkit.Certificate{Name: "backend", Hosts: []string{backendName, otherName}}.PEM(s.t)
	var err error
	if s.backendCertificate, err = tls.X509KeyPair(chain, key); err != nil {
		s.t.Fatal(err)
	}
	s.authority = chain
	s.sessions = tls.NewLRUClientSessionCache(16)
}

// TestStress is described in the package comment.
func TestStress(t *testing.T) {
	s := &run{t: t, seed: *seedFlag, start: time.Now(), metrics: observe.NewMetrics(observe.MetricsOptions{}), accessLog: &tail{}}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	t.Logf("-stress.seed=%d", s.seed)
	s.classes = classes
	if *classesFlag != "" {
		s.classes = strings.Split(*classesFlag, ",")
	}
	duration := *durationFlag
	if testing.Short() {
		duration = min(duration, 5*time.Second)
	}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	var lent atomic.Int64
	buffer.Count(&lent)
	defer buffer.Count(nil)

	s.stop, s.end = context.WithCancel(context.Background())
	defer s.end()
	s.newCertificates()
	s.port, s.securePort, s.otherPort = freePort(t), freePort(t), freePort(t)
	s.newServices()
	log, err := observe.OpenAccessLog("json", s.accessLog, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plainIO := newDice(s.seed, 1<<62).oneIn(4)
	t.Logf("plain I/O: %v", plainIO)
	s.proxy = proxy.New(proxy.Options{PlainIO: plainIO, Bind: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, AccessLog: log, Metrics: s.metrics,
		Timeouts: proxy.Timeouts{Linger: 100 * time.Millisecond}, Upstream: upstream.Options{ConnectTimeout: 500 * time.Millisecond}})
	s.apply("all", s.wholeConfiguration())

	s.storm(duration)
	if !t.Failed() {
		s.afterwards()
	}
	t.Logf("what happened:\n%v", &s.counts)

	for _, sv := range s.services {
		for _, p := range sv.peers {
			p.close()
		}
	}
	if !t.Failed() {
		s.settled()
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := s.proxy.Shutdown(ctx); err != nil && !t.Failed() {
		t.Errorf("shutdown: %v", err)
	}
	log.Close(longest)
	if t.Failed() {
		return
	}
	t.Logf("%d buffers, %d goroutines, %d descriptors", lent.Load(), runtime.NumGoroutine(), descriptors(t))
	s.eventually("all buffers are given back", func() string { return leftOver(int(lent.Load()), 0) })
	s.eventually("all goroutines end", func() string {
		if text := leftOver(runtime.NumGoroutine(), goroutines); text != "" {
			stacks := make([]byte, 1<<20)
			return text + "\n" + string(stacks[:runtime.Stack(stacks, true)])
		}
		return ""
	})
	s.eventually("all descriptors are closed", func() string {
		runtime.GC() // pipes in a pool, see package splice
		return leftOver(descriptors(t), files)
	})
}

func leftOver(now, before int) string {
	if now <= before {
		return ""
	}
	return fmt.Sprintf("%d, want %d", now, before)
}

// eventually waits until f returns "", which says what is wrong else.
func (s *run) eventually(what string, f func() string) {
	s.t.Helper()
	for end := time.Now().Add(longest); ; time.Sleep(20 * time.Millisecond) {
		wrong := f()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("not within %v: %s: %s\nrun again with -stress.seed=%d", longest, what, wrong, s.seed)
			return
		}
	}
}

// storm lets clients, backends and edits do what they like, for so long, and on a slow machine until enough has happened.
func (s *run) storm(d time.Duration) {
	var work sync.WaitGroup
	for k := range *clientsFlag {
		work.Go(func() { s.client(k) })
	}
	work.Go(s.edit)
	s.pause(d)
	enough := func() bool {
		return s.counts.sum("client HTTP/1.1: complete") >= 50 && s.counts.sum("client HTTP/2: complete") >= 50
	}
	for end := time.Now().Add(2 * time.Minute); !enough() && s.pause(50*time.Millisecond); {
		if time.Now().After(end) {
			s.fail(nil, "only %d requests were completed", s.completed())
		}
	}
	s.end()
	work.Wait()
}

// afterwards checks that nothing is left of the storm: when nobody does any harm any more, nothing fails.
func (s *run) afterwards() {
	for _, sv := range s.services {
		for _, p := range sv.peers {
			s.reopen(p)
		}
	}
	s.calm.Store(true)
	// Connections made in the storm keep their moods, so they are not used any more: another address is another endpoint.
	s.apply("all gone", nil, s.endpointIDs()...)
	s.apply("all again", s.wholeConfiguration())
	d, before := newDice(s.seed, 1<<61), s.completed()
	for n := uint64(0); n < 60 && s.failures.Load() == 0; n++ {
		s.visit(d, 1<<10, n)
	}
	if n := s.completed() - before; n < 100 && !s.t.Failed() {
		s.t.Errorf("only %d requests were completed after the storm", n)
	}
}

// completed is how many requests got all of a backend's response.
func (s *run) completed() int {
	return s.counts.sum("client HTTP/1.1: complete") + s.counts.sum("client HTTP/2: complete")
}

func (s *run) endpointIDs() (ids []config.ID) {
	for _, sv := range s.services {
		ids = append(ids, config.ID{Kind: config.KindEndpoints, Key: sv.key()})
	}
	return ids
}

// settled checks that nothing is counted as under way.
func (s *run) settled() {
	s.eventually("no request is in flight", func() string {
		families, err := s.metrics.Gatherer().Gather()
		if err != nil {
			return err.Error()
		}
		wrong, found := "", 0
		for _, f := range families {
			switch f.GetName() {
			case "moongate_upstream_requests_in_flight", "moongate_upstream_connections_active", "moongate_downstream_connections_active":
			default:
				continue
			}
			found++
			for _, m := range f.GetMetric() {
				if m.GetGauge().GetValue() != 0 {
					wrong += fmt.Sprintf("%s %v; ", f.GetName(), m)
				}
			}
		}
		if found != 3 {
			return fmt.Sprintf("%d metrics, want 3", found)
		}
		return wrong
	})
}

// descriptors is how many files, sockets and pipes the process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("descriptors are not counted here: %v", err)
		return 0
	}
	return len(entries)
}
