package upstream

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// remapped is the share of the slots, thus of all hashes, that lead to another endpoint in b than in a.
func remapped(a, b *table) float64 {
	n := 0
	for i := range a.slots {
		if a.addresses[a.slots[i]] != b.addresses[b.slots[i]] {
			n++
		}
	}
	return float64(n) / float64(len(a.slots))
}

// TestRemapping: of 20 endpoints one that goes takes 1/20 of all hashes with it, and one that comes takes 1/21 of them from the others: no table can do with fewer.
// Beside these few move. One that takes the place of another is both, one after the other, since nothing but its address tells proxies what it follows.
func TestRemapping(t *testing.T) {
	const n, most = 20, .07
	var removed, added, replaced float64 // the greatest
	for net := range 8 {
		addresses := make([]netip.AddrPort, n+1)
		for i := range addresses {
			addresses[i] = netip.MustParseAddrPort(fmt.Sprintf("10.%d.%d.%d:8080", net, i*7%11, 1+i*37%250))
		}
		slices.SortFunc(addresses, netip.AddrPort.Compare)
		without := func(gone ...int) *table {
			in := &tableInput{size: 65537}
			for i, a := range addresses {
				if !slices.Contains(gone, i) {
					in.addresses = append(in.addresses, a)
				}
			}
			return newTable(in)
		}
		last := without(n) // all but the last one
		for _, i := range []int{0, 7, n - 1} {
			less := without(i, n)
			removed = max(removed, remapped(last, less))
			added = max(added, remapped(less, last))
			replaced = max(replaced, remapped(last, without(i)))
		}
		added = max(added, remapped(last, without()))
	}
	t.Logf("removal %.2f%%, addition %.2f%%, replacement %.2f%% at most", 100*removed, 100*added, 100*replaced)
	if removed > most || added > most || replaced > 2*most {
		t.Errorf("removal moves %.4f of all hashes, addition %.4f, and replacement %.4f", removed, added, replaced)
	}
	if removed < 1.0/n-.005 || added < 1.0/(n+1)-.005 {
		t.Errorf("removal moves %.4f of all hashes, addition %.4f: less than those of the endpoint, so that nothing is compared", removed, added)
	}
}
