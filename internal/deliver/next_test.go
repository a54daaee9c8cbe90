package deliver

import (
	"fmt"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// BenchmarkNext is what one change costs while a proxy has thousands of other resources.
func BenchmarkNext(b *testing.B) {
	r, s := withRoutes(5000)
	b.ReportAllocs()
	for b.Loop() {
		if _, d, err := r.next(s); err != nil || len(d.Upserts) != 1 {
			b.Fatal(d, err)
		}
		s.state = answered
	}
}

// TestNextCostsWhatChanged: what a delta allocates does not grow with what is held.
func TestNextCostsWhatChanged(t *testing.T) {
	allocated := func(routes int) int64 {
		r, s := withRoutes(routes)
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, _, err := r.next(s); err != nil {
					b.Fatal(err)
				}
				s.state = answered
			}
		}).AllocedBytesPerOp()
	}
	if few, many := allocated(10), allocated(5000); many > 2*few {
		t.Errorf("a change beside 10 routes allocates %d bytes, beside 5,000 %d", few, many)
	}
}

// withRoutes is a Remote with that many resources, and a stream that lacks the last one.
func withRoutes(n int) (*Remote, *stream) {
	r := NewRemote(RemoteOptions{})
	listener := func(i int) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: fmt.Sprint(i), Gateway: "a/b"}}}
	}
	all := &config.Update{Generation: 1}
	for i := range n {
		all.Upserts = append(all.Upserts, listener(i))
	}
	r.parts.Apply(all)
	r.parts.Apply(&config.Update{Generation: 2, Upserts: []*config.Resource{listener(n)}})
	r.epoch, r.complete = "e", true
	return r, &stream{gateway: r.gateway("a/b"), base: 1}
}
