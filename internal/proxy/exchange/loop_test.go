package exchange

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/message"
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
		var f message.Fields
		for _, l := range c.lines {
			name, value, _ := strings.Cut(l, ":")
			f.Add([]byte(name), []byte(strings.TrimSpace(value)))
		}
		if n := passes(&f); n != c.want {
			t.Errorf("%q: %d, want %d", c.lines, n, c.want)
		}
	}
}

// BenchmarkPasses counts on the fields of a usual request.
func BenchmarkPasses(b *testing.B) {
	var f message.Fields
	for _, n := range []string{"User-Agent", "Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Referer", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"} {
		f.Add([]byte(n), []byte("value"))
	}
	b.ReportAllocs()
	for b.Loop() {
		passes(&f)
	}
}

// TestTunnels: what is known of connections is forgotten with them, and not that of others which have got their addresses.
func TestTunnels(t *testing.T) {
	var all tunnels
	address := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	a, b, c := tunnelled{address(1000), address(1)}, tunnelled{address(2000), address(1)}, tunnelled{address(1000), address(2)}
	first := &pass{listener: "one"}
	second := &pass{"two", first}
	all.add(a, first)
	all.add(b, second)
	if all.get(c).has("one") || all.get(a).has("two") || !all.get(b).has("one") || !all.get(b).has("two") {
		t.Errorf("%+v", all.made)
	}
	all.add(a, second)
	all.remove(a, first)
	if all.get(a) != second {
		t.Error("a connection was forgotten with the one before that had its addresses")
	}
	all.remove(a, second)
	all.remove(b, second)
	all.remove(c, nil)
	if all.made != nil {
		t.Errorf("%+v is left", all.made)
	}
}
