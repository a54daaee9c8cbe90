package resolve

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit/dnsserver"
)

func TestFamilies(t *testing.T) {
	v4, v6 := found{addresses: addrs("192.0.2.1"), ttl: time.Minute}, found{addresses: addrs("2001:db8::1"), ttl: time.Second}
	all := addrs("192.0.2.1", "2001:db8::1")
	absent, failed := &absentError{host: "a"}, errors.New("failed")
	for _, test := range []struct {
		family     Family
		err4, err6 error
		want       []netip.Addr
		err        error
	}{
		{PreferIPv4, nil, nil, all[:1], nil},
		{PreferIPv6, nil, nil, all[1:], nil},
		{PreferIPv6, nil, absent, all[:1], nil},
		{PreferIPv6, nil, failed, nil, failed},
		{OnlyIPv4, nil, nil, all[:1], nil},
		{OnlyIPv4, absent, nil, nil, absent},
		{OnlyIPv6, nil, nil, all[1:], nil},
		{OnlyIPv6, nil, absent, nil, absent},
		{BothFamilies, nil, nil, all, nil},
		{BothFamilies, absent, nil, all[1:], nil},
		{BothFamilies, nil, absent, all[:1], nil},
		{BothFamilies, absent, absent, nil, absent},
		{BothFamilies, failed, nil, all[1:], nil},
		{BothFamilies, nil, failed, all[:1], nil},
		{BothFamilies, failed, failed, nil, failed},
		{BothFamilies, absent, failed, nil, failed},
	} {
		of4, of6 := v4, v6
		if test.err4 != nil {
			of4 = found{}
		}
		if test.err6 != nil {
			of6 = found{}
		}
		got, err := test.family.chosen(of4, of6, test.err4, test.err6)
		if !slices.Equal(got.addresses, test.want) || err != test.err || test.family == BothFamilies && len(got.addresses) == 2 && got.ttl != time.Second {
			t.Errorf("%d with %v and %v: %v for %v, %v", test.family, test.err4, test.err6, got.addresses, got.ttl, err)
		}
	}
}

// TestFindFamily: only the families that are used are asked for.
func TestFindFamily(t *testing.T) {
	s := dnsserver.Start(t)
	s.Set(t, "both.example.com", "both.example.com. 60 IN A 192.0.2.1", "both.example.com. 30 IN AAAA 2001:db8::1")
	c := &client{servers: []netip.AddrPort{s.Addr()}}
	for family, want := range map[Family]struct {
		addresses []netip.Addr
		asked     int
	}{
		PreferIPv4: {addrs("192.0.2.1"), 2}, PreferIPv6: {addrs("2001:db8::1"), 2}, OnlyIPv4: {addrs("192.0.2.1"), 1}, OnlyIPv6: {addrs("2001:db8::1"), 1},
		BothFamilies: {addrs("192.0.2.1", "2001:db8::1"), 2},
	} {
		before := s.Asked("both.example.com")
		got, err := c.find(t.Context(), "both.example.com", family)
		if asked := s.Asked("both.example.com") - before; err != nil || !slices.Equal(got.addresses, want.addresses) || asked != want.asked {
			t.Errorf("%d: %v, %v, asked %d times", family, got.addresses, err, asked)
		}
	}
}

var errNobody = errors.New("nobody answers")

// TestFamilyKept: a family about which nobody answers keeps its addresses where both are used, and is asked for again soon.
func TestFamilyKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		var silent, asked atomic.Int32 // silent is a missingFamily
		both := found{addresses: addrs("192.0.2.1", "2001:db8::1"), ttl: time.Hour}
		r.find = func(context.Context, string, Family) (found, error) {
			asked.Add(1)
			switch missingFamily(silent.Load()) {
			case missing4:
				return found{addresses: addrs("2001:db8::2"), ttl: time.Hour, missing: missing4, why: errNobody}, nil
			case missing6:
				return found{addresses: addrs("192.0.2.2"), ttl: time.Hour, missing: missing6, why: errNobody}, nil
			}
			return both, nil
		}
		var got Answer
		stop := r.WatchBy("ns", "a", Lookup{Family: BothFamilies, Refresh: time.Minute}, func(a Answer) {
			r.mu.Lock()
			defer r.mu.Unlock()
			got = a
		})
		for _, step := range []struct {
			silent missingFamily
			want   []netip.Addr
		}{
			{missing6, addrs("192.0.2.2")}, // nothing was known before
			{0, both.addresses},
			{missing6, addrs("192.0.2.2", "2001:db8::1")},
			{missing4, addrs("192.0.2.2", "2001:db8::2")},
			{0, both.addresses},
		} {
			silent.Store(int32(step.silent))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			r.mu.Lock()
			a := got
			r.mu.Unlock()
			if !slices.Equal(a.Addresses, step.want) || (a.Err != nil) != (step.silent != 0) {
				t.Errorf("without family %d: %v, want %v", step.silent, a, step.want)
			}
		}
		silent.Store(int32(missing6))
		asked.Store(0)
		time.Sleep(10 * time.Minute)
		if n := asked.Load(); n < 10 || n > 20 { // as often as by the interval, and soon after it is missing
			t.Errorf("a family that is missing is asked for %d times in 10 minutes", n)
		}
		stop()
		r.Close()
	})
}

// TestRefresh: where its TTL does not count, a host is asked for at an interval, once a second at most; others of the same name by their TTL.
func TestRefresh(t *testing.T) {
	for refresh, least := range map[time.Duration]int{time.Minute: 50, time.Millisecond: 3000, 0: 10} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			r := New(Options{})
			r.find = func(context.Context, string, Family) (found, error) {
				asked++
				return found{addresses: addrs("192.0.2.1"), ttl: 5 * time.Minute}, nil
			}
			var l answers
			stop := r.WatchBy("ns", "a", Lookup{Refresh: refresh}, l.answer)
			time.Sleep(time.Hour)
			synctest.Wait()
			if most := least*5/4 + 1; asked < least || asked > most {
				t.Errorf("each %v: asked %d times in an hour, want %d to %d", refresh, asked, least, most)
			}
			stop()
			r.Close()
		})
	}
}
