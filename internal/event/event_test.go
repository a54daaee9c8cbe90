package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// site is a Recorder that runs, and the cluster that it writes to.
type site struct {
	*Recorder
	cluster *fake.Clientset
	log     testkit.Log
	end     func()
}

// newSite starts a Recorder until the test ends; call it in a bubble of synctest.
func newSite(t *testing.T) *site {
	s := &site{cluster: fake.NewClientset()}
	names := 0
	s.cluster.PrependReactor("create", "events", func(a clientgotesting.Action) (bool, runtime.Object, error) {
		names++ // as the API server does for generateName
		a.(clientgotesting.CreateAction).GetObject().(*eventsv1.Event).Name = fmt.Sprint("moongate-", names)
		return false, nil, nil
	})
	s.Recorder = New(Options{Client: s.cluster.EventsV1(), Controller: "moongate.dev/test", Instance: "pod-1", Logger: slog.New(slog.NewTextHandler(&s.log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	s.end = func() { stop(); <-done }
	t.Cleanup(s.end)
	return s
}

// hold has writes wait until the channel is closed.
func (s *site) hold() chan struct{} {
	held := make(chan struct{})
	s.cluster.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) {
		<-held
		return false, nil, nil
	})
	return held
}

// events are those of the cluster.
func (s *site) events(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := s.cluster.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func about(name, reason, note string) Event {
	return Event{Regarding: corev1.ObjectReference{Kind: "HTTPRoute", Namespace: "n", Name: name, UID: "1"}, Warning: true, Reason: reason, Action: "UpdateStatus", Note: note}
}

// TestEvent: an Event has what the API server demands, and no more than it allows.
func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.Record(about("web", "BackendNotFound", strings.Repeat("\u00fc", 2000))) // whose bytes the limit splits
		synctest.Wait()
		all := s.events(t)
		if len(all) != 1 {
			t.Fatalf("%d Events", len(all))
		}
		e := all[0]
		if e.Namespace != "n" || e.Regarding.Name != "web" || e.Type != corev1.EventTypeWarning || e.Reason != "BackendNotFound" || e.Action != "UpdateStatus" ||
			e.ReportingController != "moongate.dev/test" || e.ReportingInstance != "pod-1" || !e.EventTime.Time.Equal(time.Now()) || e.Series != nil {
			t.Errorf("%+v", e)
		}
		if n := len(e.Note); n > maxNote || n < maxNote-4 || !utf8.ValidString(e.Note) {
			t.Errorf("the note has %d bytes", n)
		}
		normal := about("web", "ResolvedRefs", "")
		normal.Warning = false
		s.Record(normal)
		synctest.Wait()
		if all := s.events(t); len(all) != 2 || all[1].Type != corev1.EventTypeNormal {
			t.Errorf("%+v", all)
		}
	})
}

// TestSeries: what repeats is one Event with a count; once it has stopped for a while, or the Event has gone, it is a new one.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		record := func(version string) {
			e := about("web", "BackendNotFound", "gone")
			e.Regarding.ResourceVersion = version
			s.Record(e)
			synctest.Wait()
			time.Sleep(time.Minute)
		}
		for i := range 3 {
			record(fmt.Sprint(i))
		}
		all := s.events(t)
		if len(all) != 1 || all[0].Series == nil || all[0].Series.Count != 3 || !all[0].Series.LastObservedTime.Time.Equal(time.Now().Add(-time.Minute)) {
			t.Fatalf("%+v", all)
		}
		if err := s.cluster.EventsV1().Events("n").Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		record("4")
		if all := s.events(t); len(all) != 1 || all[0].Series != nil {
			t.Errorf("after the Event has gone: %+v", all)
		}
		time.Sleep(seriesInterval)
		record("5")
		if all := s.events(t); len(all) != 2 {
			t.Errorf("after a while: %+v", all)
		}
		if written, dropped := s.Stats(); written != 5 || len(dropped) != 0 {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
	})
}

// TestBounds: one object cannot have more than its share, whoever records never waits, and what is dropped is counted.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		for i := range objectBurst + 10 {
			s.Record(about("flaps", "R", fmt.Sprint(i)))
		}
		s.Record(about("other", "R", "")) // has its own
		time.Sleep(10 * time.Second)
		if written, dropped := s.Stats(); written != objectBurst+1 || dropped[reasonObject] != 10 {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
		time.Sleep(2 * objectInterval)
		s.Record(about("flaps", "R", "later"))
		synctest.Wait()
		if written, _ := s.Stats(); written != objectBurst+2 {
			t.Errorf("after a while %d are written", written)
		}

		held := s.hold()
		const all = 2 * queueLength
		for i := range all {
			e := about(fmt.Sprint("many-", i), "R", "")
			e.Regarding.Namespace = fmt.Sprint("n-", i%8)
			s.Record(e) // would hang if it waited
		}
		_, dropped := s.Stats()
		if n := dropped[reasonQueue]; n < all-queueLength-1 || n > all-queueLength {
			t.Errorf("%d were dropped of %d", n, all)
		}
		close(held)
		time.Sleep(time.Second)
		if written, _ := s.Stats(); written > objectBurst+2+burst+rate+1 {
			t.Errorf("%d were written within a second", written)
		}
		time.Sleep(queueLength / rate * time.Second)
		synctest.Wait()
		if n := len(s.queue); n != 0 {
			t.Errorf("%d wait", n)
		}
		if len(s.objects) > maxKnown || len(s.series) > maxKnown {
			t.Errorf("%d objects and %d series are remembered", len(s.objects), len(s.series))
		}
	})
}

// TestNoteIsCutAtOnce: what waits and what is remembered holds no more of a note than is written. A condition's message may have 32 KiB.
func TestNoteIsCutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.Record(about("web", strings.Repeat("R", 2*maxWord), strings.Repeat("a", 32<<10)))
		s.Record(about("web", strings.Repeat("R", 2*maxWord), strings.Repeat("a", 32<<10)+"b")) // is written the same
		synctest.Wait()
		for e := range s.series {
			if len(e.Note) > maxNote || len(e.Reason) > maxWord {
				t.Errorf("%d bytes of a note and %d of a reason are remembered", len(e.Note), len(e.Reason))
			}
		}
		if all := s.events(t); len(all) != 1 || all[0].Series == nil || all[0].Series.Count != 2 {
			t.Errorf("%+v", all)
		}
	})
}

// TestShares: one namespace that has more Events than are written leaves room in the queue for others.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		held := s.hold()
		in := func(namespace string, i int) Event {
			e := about(fmt.Sprint("route-", i), "R", "")
			e.Regarding.Namespace = namespace
			return e
		}
		for i := range 2 * queueLength {
			s.Record(in("loud", i))
		}
		synctest.Wait()
		_, before := s.Stats()
		for i := range queueShare {
			s.Record(in("calm", i))
		}
		if _, after := s.Stats(); after[reasonQueue] != before[reasonQueue] || before[reasonQueue] == 0 {
			t.Errorf("dropped were %v, then %v", before, after)
		}
		close(held)
		time.Sleep(queueLength / rate * time.Second)
		synctest.Wait()
		calm, err := s.cluster.EventsV1().Events("calm").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(calm.Items) != queueShare {
			t.Errorf("%d Events of the calm namespace are written, %v", len(calm.Items), err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.waiting) != 0 {
			t.Errorf("%v wait", s.waiting)
		}
	})
}

// TestEnd: what waits at the end is written, unless the API server does not answer.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		held := s.hold()
		for i := range 5 {
			s.Record(about(fmt.Sprint(i), "R", ""))
		}
		synctest.Wait()
		go s.end()
		synctest.Wait()
		close(held)
		synctest.Wait()
		if written, dropped := s.Stats(); written != 5 || len(dropped) != 0 {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
		s = newSite(t)
		s.cluster.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) {
			time.Sleep(flush)
			return true, nil, errors.New("no answer")
		})
		for i := range 5 {
			s.Record(about(fmt.Sprint(i), "R", ""))
		}
		begin := time.Now()
		s.end()
		if took := time.Since(begin); took > 2*flush {
			t.Errorf("the end took %v", took)
		}
		if _, dropped := s.Stats(); dropped[reasonFailed] != 5 {
			t.Errorf("dropped %v", dropped)
		}
	})
}

// TestMemory: however many objects have Events, what is remembered of them is bounded.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.cluster.PrependReactor("create", "events", func(a clientgotesting.Action) (bool, runtime.Object, error) {
			return true, a.(clientgotesting.CreateAction).GetObject(), nil // not kept
		})
		for i := range 2 * maxKnown {
			s.Record(about(fmt.Sprint("route-", i), "R", ""))
			time.Sleep(time.Second / rate)
		}
		synctest.Wait()
		if len(s.objects) > maxKnown || len(s.series) > maxKnown {
			t.Errorf("%d objects and %d series are remembered", len(s.objects), len(s.series))
		}
		if written, dropped := s.Stats(); written != 2*maxKnown {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
	})
}

// TestFailures: what the API server refuses is logged once for each reason, and counted; nothing is tried again.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var fail atomic.Pointer[error]
		s.cluster.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) {
			if err := fail.Load(); err != nil {
				return true, nil, *err
			}
			return false, nil, nil
		})
		forbidden := error(apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "", errors.New("no role")))
		away := errors.New("connection refused")
		for i, err := range []*error{&forbidden, &forbidden, &away, &away, nil, &away} {
			fail.Store(err)
			s.Record(about(fmt.Sprint(i), "R", ""))
			synctest.Wait()
		}
		if n := s.log.Count("an Event cannot be written"); n != 3 || s.log.Count("create and patch events of group events.k8s.io") != 1 {
			t.Errorf("%d lines:\n%s", n, &s.log)
		}
		if written, dropped := s.Stats(); written != 1 || dropped[reasonFailed] != 5 {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
	})
}

// TestFailuresByTurns: refusals by turns with what is taken, as where the quota of one namespace forbids Events, do not fill the log.
func TestFailuresByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "", errors.New("exceeded quota"))
		s.cluster.PrependReactor("create", "events", func(a clientgotesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() == "full", nil, forbidden
		})
		const turns = 1000
		for i := range turns {
			e := about(fmt.Sprint("route-", i), "R", "")
			s.Record(e)
			e.Regarding.Namespace = "full"
			s.Record(e)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := s.log.Count("an Event cannot be written"); n == 0 || n > objectBurst+turns/60+1 {
			t.Errorf("%d lines", n)
		}
		if written, dropped := s.Stats(); written != turns || dropped[reasonFailed] != turns {
			t.Errorf("%d written, dropped %v", written, dropped)
		}
	})
}

// TestNamespaceGone: that a namespace ends, or is gone before its last Events are written, is no trouble to log.
func TestNamespaceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ending := apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "", errors.New("it is being terminated"))
		ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		for _, err := range []error{ending, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n")} {
			s.cluster.PrependReactor("create", "events", func(clientgotesting.Action) (bool, runtime.Object, error) { return true, nil, err })
			s.Record(about("web", "R", err.Error()))
			synctest.Wait()
		}
		if _, dropped := s.Stats(); dropped[reasonFailed] != 2 || s.log.Count("an Event cannot be written") != 0 {
			t.Errorf("dropped %v:\n%s", dropped, &s.log)
		}
	})
}
