package compression

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func fields(lines ...string) *message.Fields {
	f := &message.Fields{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		f.Add([]byte(name), []byte(value))
	}
	return f
}

var all = Policy{{Gzip, 30}, {Brotli, 30}, {Zstd, 30}}

// TestChoose follows RFC 9110 section 12.5.3: weights first, and then the order of the policy.
func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		header string // fields, separated by |
		policy Policy
		want   Encoding
	}{
		{"", all, Identity},
		{"Accept-Encoding: ", all, Identity},
		{"Accept-Encoding: gzip", all, Gzip},
		{"accept-encoding: GZIP", all, Gzip},
		{"Accept-Encoding: x-gzip", all, Gzip},
		{"Accept-Encoding: gzip, deflate, br, zstd", all, Gzip},
		{"Accept-Encoding: gzip, deflate, br, zstd", Policy{{Zstd, 30}, {Brotli, 30}, {Gzip, 30}}, Zstd},
		{"Accept-Encoding: gzip, deflate, br, zstd", Policy{{Brotli, 30}}, Brotli},
		{"Accept-Encoding: deflate", all, Identity},
		{"Accept-Encoding: gzip;q=0.5, br;q=0.501", all, Brotli},
		{"Accept-Encoding: gzip ; q=0.5 , br ;\tQ=0.6", all, Brotli},
		{"Accept-Encoding: gzip;q=0", all, Identity},
		{"Accept-Encoding: gzip;q=0.000, zstd;q=0.001", all, Zstd},
		{"Accept-Encoding: gzip;q=1.000", all, Gzip},
		{"Accept-Encoding: *", all, Gzip},
		{"Accept-Encoding: *;q=0", all, Identity},
		{"Accept-Encoding: gzip;q=0, *", all, Brotli},
		{"Accept-Encoding: br;q=0.5, *;q=0.1", all, Brotli},
		{"Accept-Encoding: gzip;q=0.5, *;q=1", Policy{{Gzip, 30}}, Identity}, // which is meant by * too
		{"Accept-Encoding: identity", all, Identity},
		{"Accept-Encoding: identity, gzip", all, Gzip},
		{"Accept-Encoding: identity;q=1, gzip;q=0.9", all, Identity},
		{"Accept-Encoding: identity;q=0.5, gzip;q=0.5", all, Gzip},
		{"Accept-Encoding: identity;q=0, gzip;q=0.1", all, Gzip},
		{"Accept-Encoding: identity;q=0", all, Identity}, // a response that is not acceptable is better than none
		{"Accept-Encoding: gzip, gzip;q=0", all, Identity},
		{"Accept-Encoding: gzip;q=0, gzip", all, Identity},
		{"Accept-Encoding: gzip;q=0|Accept-Encoding: br", all, Brotli},
		{"Accept-Encoding: zstd|Accept: gzip", all, Zstd},
		// What is malformed is as if it were not there.
		{"Accept-Encoding: gzip;q=2", all, Identity},
		{"Accept-Encoding: gzip;q=1.001", all, Identity},
		{"Accept-Encoding: gzip;q=0.1234", all, Identity},
		{"Accept-Encoding: gzip;q=", all, Identity},
		{"Accept-Encoding: gzip;q", all, Identity},
		{"Accept-Encoding: gzip;", all, Identity},
		{"Accept-Encoding: gzip;q=.5", all, Identity},
		{"Accept-Encoding: gzip;q=-1", all, Identity},
		{"Accept-Encoding: gzip;q=0x1", all, Identity},
		{"Accept-Encoding: gzip;level=9", all, Identity},
		{"Accept-Encoding: gzip;q=1;q=0", all, Identity},
		{"Accept-Encoding: ,,;,gzipp,zip,\"gzip\", br", all, Brotli},
		{"Accept-Encoding: gzip;q=0., br;q=0.", all, Identity},
		{"Accept-Encoding: gzip;q=1., br", all, Gzip},
		{"Accept-Encoding: gzip", nil, Identity},
	} {
		a := ParseAccepted(fields(strings.Split(tc.header, "|")...))
		if o, ok := a.Choose(tc.policy, 0); ok != (tc.want != Identity) || ok && o.Encoding != tc.want {
			t.Errorf("%q, %v: got %v %v, want %v", tc.header, tc.policy, o, ok, tc.want)
		}
	}
}

// TestChooseUnavailable: what cannot be had is as if it were not offered.
func TestChooseUnavailable(t *testing.T) {
	a := ParseAccepted(fields("Accept-Encoding: br, zstd;q=0.9, gzip;q=0.8"))
	var unavailable Set
	for _, want := range []Encoding{Brotli, Zstd, Gzip, Identity} {
		o, ok := a.Choose(all, unavailable)
		if ok != (want != Identity) || ok && o.Encoding != want {
			t.Errorf("without %b: got %v %v, want %v", unavailable, o, ok, want)
		}
		unavailable = unavailable.With(want)
	}
}

// FuzzAccepted: an encoding that was chosen is named, or * is, and with a weight; what is read twice as two fields is as in one.
func FuzzAccepted(f *testing.F) {
	for _, s := range []string{"gzip, br;q=0.5", "*", "identity;q=0, *;q=0.001", ";q=1,,", "gzip;q=1.0001", "gzip;q=\x00", "x-gzip ;\tq=0.3"} {
		f.Add(s, "br")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		a := ParseAccepted(fields("Accept-Encoding: "+one, "Accept-Encoding: "+two))
		if b := ParseAccepted(fields("Accept-Encoding: " + one + "," + two)); a != b {
			t.Errorf("%q, %q: in two fields %v, in one %v", one, two, a, b)
		}
		for _, w := range append(a.listed[:], a.any) {
			if w > full+1 {
				t.Errorf("%q, %q: weight %d", one, two, w)
			}
		}
		o, ok := a.Choose(all, 0)
		list := strings.ToLower(one + "," + two)
		if ok && !strings.Contains(list, o.Encoding.String()) && !strings.Contains(list, "*") {
			t.Errorf("%q, %q: chose %v", one, two, o.Encoding)
		}
		if !ok {
			return
		}
		// A refusal behind it counts.
		if p, ok := (Policy{o}), true; ok {
			c := ParseAccepted(fields("Accept-Encoding: "+one, "Accept-Encoding: "+two, fmt.Sprintf("Accept-Encoding: %s;q=0", o.Encoding)))
			if _, ok := c.Choose(p, 0); ok {
				t.Errorf("%q, %q: %v was refused, and chosen", one, two, o.Encoding)
			}
		}
	})
}

func BenchmarkParseAccepted(b *testing.B) {
	h := fields("User-Agent: curl/8.5.0", "Accept: */*", "Accept-Encoding: gzip, deflate, br, zstd")
	b.ReportAllocs()
	for b.Loop() {
		a := ParseAccepted(h)
		a.Choose(all, 0)
	}
}
