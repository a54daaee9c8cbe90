package upstream

import (
	"github.com/moongate-dev/moongate/internal/config"
)

// shares are those of requests that go to zones; immutable.
type shares struct {
	// ending is of each zone the sum up to it, of 1<<32. What is left goes to all endpoints, whatever their zones.
	ending []uint64
}

// draw chooses a zone; nil is that all endpoints are drawn from.
func (s *shares) draw(zones []*pool, seed *uint64) *pool {
	r := Random(seed) & 0xffffffff
	for i, end := range s.ending {
		if r < end {
			return zones[i]
		}
	}
	return nil
}

// newShares computes them from the endpoints that are fit now; nil is that zones do not count.
func (l *balancer) newShares() *shares {
	counts, local := make([]int, len(l.zones)), -1
	own := l.set.Zone()
	for i, z := range l.zones {
		for _, e := range z.list {
			if e.fit() {
				counts[i]++
			}
		}
		if own != "" && z.zone == own {
			local = i
		}
	}
	var of []float64
	if l.settings.local != nil {
		of = localShares(counts, local, l.settings.local)
	} else {
		of = weightShares(counts, l.zones, l.settings.zoneWeights)
	}
	if of == nil {
		return nil
	}
	s := &shares{ending: make([]uint64, len(of))}
	sum := 0.0
	for i, f := range of {
		sum += f
		s.ending[i] = uint64(min(sum, 1)*(1<<32) + 0.5)
	}
	return s
}

// localShares is zone-aware routing as Envoy has it, as far as one proxy can know: it cannot know which zones the others are in, and takes it that there are
// as many in each of the zones that have endpoints. Of Z such zones with n endpoints in sum, n_z of them in zone z, the proxies of a zone then send 1/Z of all
// requests, and its endpoints are to get n_z/n:
//
//   - Where n_z/n >= 1/Z in the proxy's own zone, all of its requests stay there.
//   - Else n_z/n * Z of them do, and what is left goes to the zones with n_z/n > 1/Z, in proportion to n_z/n - 1/Z: what the proxies there leave.
//
// So all endpoints get the same in sum. Zones do not count where the proxy's own has no endpoint or is not known (local is -1), or where n is below
// min_endpoints; and for percentage of the requests at most. With force all requests stay, as long as n_z is not below min_endpoints_in_zone.
//
// It returns nil where zones do not count.
func localShares(counts []int, local int, p *config.PreferLocalZone) []float64 {
	n, zones := 0, 0
	for _, c := range counts {
		if n += c; c > 0 {
			zones++
		}
	}
	if local < 0 || counts[local] == 0 || n < int(p.MinEndpoints) || p.Percentage == 0 {
		return nil
	}
	of := make([]float64, len(counts))
	counted := float64(min(p.Percentage, 100)) / 100
	proxies := 1 / float64(zones)
	own := float64(counts[local]) / float64(n)
	if p.Force && counts[local] >= int(p.MinEndpointsInZone) || own >= proxies {
		of[local] = counted
		return of
	}
	of[local] = own / proxies * counted
	left, spare := counted-of[local], 0.0
	for _, c := range counts {
		spare += max(float64(c)/float64(n)-proxies, 0)
	}
	for i, c := range counts {
		if over := float64(c)/float64(n) - proxies; over > 0 {
			of[i] += left * over / spare
		}
	}
	return of
}

// weightShares has each zone with a usable endpoint get its weight, whatever the number of its endpoints. It returns nil where no such zone has a weight.
func weightShares(counts []int, zones []*pool, weights map[string]uint32) []float64 {
	sum, of := 0.0, make([]float64, len(zones))
	for i, z := range zones {
		if counts[i] > 0 {
			of[i] = zoneWeight(weights, z.zone)
			sum += of[i]
		}
	}
	if sum == 0 {
		return nil
	}
	for i := range of {
		of[i] /= sum
	}
	return of
}

// zoneWeight is 1 for a zone that is not named.
func zoneWeight(weights map[string]uint32, zone string) float64 {
	if w, named := weights[zone]; named {
		return float64(w)
	}
	return 1
}
