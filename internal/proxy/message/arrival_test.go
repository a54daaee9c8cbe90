package message

import (
	"strings"
	"testing"
)

// TestClaims: names that a CGI-like server takes for those of provenance and ids claim the same, and no others do.
func TestClaims(t *testing.T) {
	claims := func(name string) (claimed [3]bool) {
		f := &Field{Name: []byte(name)}
		return [3]bool{ClaimsProvenance(f), DisguisesProvenance(f), ClaimsRequestID(f)}
	}
	provenance, disguised, id, none := [3]bool{true}, [3]bool{true, true}, [3]bool{2: true}, [3]bool{}
	for name, want := range map[string][3]bool{
		"X-Forwarded-For": provenance, "x-forwarded": provenance, "X-FORWARDED-ANYTHING": provenance, "Forwarded": provenance, "X-Real-IP": provenance,
		"X-Forwarded-Some.Thing": disguised, "X-Forwarded.For": disguised, "x+forwarded": disguised, "X_Real-Ip": disguised,
		"X-Request-ID": id, "x_request_id": id, "X-Request.Id": id,
		"X": none, "F": none, "X-Forwarder": none, "X-ForwardedFor": none, "X.Real": none, "X.Real.IPs": none, "Forwarded-For": none, "Forwarded.": none,
		"X-Request-Ids": none, "X.Requests": none, "XxForwarded-For": none, "X1Real-IP": none, "-X-Real-IP": none,
	} {
		if got := claims(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, mark := range "!#$%&'*+.^_`|~" {
		for name, want := range map[string][3]bool{"X-Forwarded-For": disguised, "X-Real-IP": disguised, "X-Request-Id": id, "User-Agent": none} {
			name = strings.ReplaceAll(name, "-", string(mark))
			if got := claims(name); got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
}

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
