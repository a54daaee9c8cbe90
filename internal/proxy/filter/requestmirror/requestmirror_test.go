package requestmirror

import (
	"errors"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const key = "Service/default/recorder/8080"

func env(t testing.TB) filter.Env {
	t.Helper()
	set := upstream.NewSet(upstream.Options{})
	t.Cleanup(set.Close)
	backend := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}}
	if err := set.Apply([]*config.Resource{backend}, nil); err != nil {
		t.Fatal(err)
	}
	return filter.Env{Backend: set.Get}
}

func compile(t testing.TB, numerator, denominator uint32) *filter.Mirror {
	t.Helper()
	f, err := Compile(&config.RequestMirror{Backend: key, Numerator: numerator, Denominator: denominator}, env(t))
	if err != nil {
		t.Fatal(err)
	}
	if f.Mirror == nil || f.Mirror.Backend.Key() != key || f.Request != nil || f.Response != nil {
		t.Fatalf("%+v", f)
	}
	return f.Mirror
}

// share is how many of 40,000 requests are copied; its standard deviation is at most 100.
func share(m *filter.Mirror) int {
	x := filter.Exchange{}
	n := 0
	for range 40_000 {
		if m.Wanted(&x) {
			n++
		}
	}
	return n
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y struct {
			BackendRef struct {
				Name string
				Port int32
			} `yaml:"backendRef"`
			Fraction struct{ Numerator, Denominator uint32 }
		}
		filtertest.Decode(t, e, "requestMirror", &y)
		if got := config.ServiceBackendKey("default", y.BackendRef.Name, y.BackendRef.Port); got != key {
			t.Errorf("the backend is %s, want %s", got, key)
		}
		if n := share(compile(t, y.Fraction.Numerator, y.Fraction.Denominator)); n < 9500 || n > 10500 {
			t.Errorf("%d of 40000 requests are copied, want one in four", n)
		}
		filtertest.Same(t, "copy", e.After, e.Before)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		numerator, denominator uint32
		low, high              int
	}{
		{0, 100, 0, 0},
		{1, 1, 40_000, 40_000},
		{100, 100, 40_000, 40_000},
		{5, 3, 40_000, 40_000},
		{50, 100, 19_500, 20_500},
		{1, 1000, 10, 80},
		{1 << 30, 1 << 31, 19_500, 20_500},
	} {
		if n := share(compile(t, c.numerator, c.denominator)); n < c.low || n > c.high {
			t.Errorf("%d/%d: %d of 40000, want %d to %d", c.numerator, c.denominator, n, c.low, c.high)
		}
	}
}

func TestRefused(t *testing.T) {
	for field, c := range map[string]*config.RequestMirror{
		"denominator": {Backend: key, Numerator: 1},
		"backend":     {Backend: "Service/default/none/1", Numerator: 1, Denominator: 1},
	} {
		var e *filter.Error
		if _, err := Compile(c, env(t)); !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func BenchmarkWanted(b *testing.B) {
	m := compile(b, 1, 4)
	x := &filter.Exchange{}
	b.ReportAllocs()
	for b.Loop() {
		m.Wanted(x)
	}
}

func TestAllocations(t *testing.T) {
	m := compile(t, 1, 4)
	filtertest.AllocatesNothing(t, &filter.Exchange{}, func(x *filter.Exchange) { m.Wanted(x) })
}
