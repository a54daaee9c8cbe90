package upstream

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/resolve"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestAwaitHost: the wait for DNS ends with the answer, the request's deadline, its client and the patience for all requests.
func TestAwaitHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, leave := context.WithCancel(t.Context())
		leave()
		for _, test := range []struct {
			what     string
			ctx      context.Context
			deadline time.Duration
			answer   bool
			want     time.Duration
		}{
			{"nothing", t.Context(), 0, false, resolveTimeout},
			{"the deadline", t.Context(), time.Second, false, time.Second},
			{"a late deadline", t.Context(), time.Minute, false, resolveTimeout},
			{"the client leaves", gone, 0, false, 0},
			{"the answer", t.Context(), 4 * time.Second, true, 3 * time.Second},
		} {
			b := &Backend{}
			r := &resolving{make(chan struct{}), time.Now().Add(resolveTimeout)}
			b.resolving.Store(r)
			if test.answer {
				time.AfterFunc(test.want, func() { close(r.answered) })
			}
			begun, deadline := time.Now(), time.Time{}
			if test.deadline > 0 {
				deadline = begun.Add(test.deadline)
			}
			if got := (&Backend{base: b}).AwaitHost(test.ctx, deadline); got != test.answer || time.Since(begun) != test.want {
				t.Errorf("%s: %v after %v", test.what, got, time.Since(begun))
			}
		}
		begun := time.Now()
		if b := (&Backend{}); b.Resolving() || !b.AwaitHost(t.Context(), time.Time{}) || time.Since(begun) != 0 {
			t.Error("what DNS has answered already is waited for, or not looked at again")
		}
	})
}

// TestRefusedAddressesAreLoggedSeldom: whoever answers for a host cannot fill the log with other addresses each time.
func TestRefusedAddressesAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		s := NewSet(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		const key = "XBackend/default/x/80"
		host := &config.ExternalHostname{Name: "a.example.com"}
		if err := s.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Port: 80, ExternalHostname: host}}}}, nil); err != nil {
			t.Fatal(err)
		}
		b := s.Get(key)
		for i := range 120 { // ten minutes
			s.resolved(b, b.host, resolve.Answer{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
			time.Sleep(5 * time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines in ten minutes", n)
		}
		s.resolved(b, b.host, resolve.Answer{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 255})}})
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines after ten minutes", n)
		}
	})
}
