package message

import (
	"strings"
	"testing"
)

func TestPasses(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  int
	}{
		{nil, 0},
		{[]string{"CDN-Loop: moongate"}, 1},
		{[]string{"cdn-loop: moongate", "CDN-LOOP: MoonGate"}, 2},
		{[]string{"CDN-Loop: moongate, moongate ,moongate"}, 3},
		{[]string{`CDN-Loop: cdn.example; x="a,b", moongate; y=1,other:80`}, 1},
		{[]string{"CDN-Loop: moongates, xmoongate, ,", "Via: moongate", "CDN-Loops: moongate"}, 0},
		{[]string{"CDN-Loop:"}, 0},
	} {
		var f Fields
		for _, l := range c.lines {
			name, value, _ := strings.Cut(l, ":")
			f.Add([]byte(name), []byte(strings.TrimSpace(value)))
		}
		if n := Passes(&f); n != c.want {
			t.Errorf("%q: %d, want %d", c.lines, n, c.want)
		}
	}
}

// BenchmarkPasses counts on the fields of a usual request.
func BenchmarkPasses(b *testing.B) {
	var f Fields
	for _, n := range []string{"User-Agent", "Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Referer", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"} {
		f.Add([]byte(n), []byte("value"))
	}
	b.ReportAllocs()
	for b.Loop() {
		Passes(&f)
	}
}

// BenchmarkClaims checks the fields of a usual request for provenance and ids.
func BenchmarkClaims(b *testing.B) {
	var f Fields
	for _, n := range []string{"User-Agent", "Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Referer", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Request-Id"} {
		f.Add([]byte(n), []byte("value"))
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for i := range f.Len() {
			if l := f.At(i); ClaimsProvenance(l) || DisguisesProvenance(l) || ClaimsRequestID(l) {
				n++
			}
		}
		if n != 4 {
			b.Fatal(n)
		}
	}
}
