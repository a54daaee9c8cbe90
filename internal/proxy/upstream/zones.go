package upstream

import (
	"github.com/moongate-dev/moongate/internal/config"
)

// shares are the shares of requests for zones. They are immutable.
type shares struct {
	// ending has the cumulative sum up to each zone, in units of 1/(1<<32). The rest goes to balancer.all, whatever the
	// zone.
	ending []uint64
}

// draw chooses a zone. It returns nil if the choice is among all endpoints.
func (s *shares) draw(zones []*pool, seed *uint64) *pool {
	r := Random(seed) & 0xffffffff
	for i, end := range s.ending {
		if r < end {
			return zones[i]
		}
	}
	return nil
}

// newShares computes the shares from the endpoints that are fit now. It returns nil if zones are not considered.
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

// localShares is zone-aware routing as in Envoy, as far as one proxy can do it: it cannot know the zones of the other
// proxies, and assumes equally many in each zone that has endpoints. Of Z such zones with n endpoints in total, n_z of
// them in zone z, the proxies of a zone then send 1/Z of all requests, and its endpoints should get n_z/n:
//
//   - If n_z/n >= 1/Z in the proxy's own zone, all of its requests stay there.
//   - Otherwise n_z/n * Z of them do, and the rest goes to the zones with n_z/n > 1/Z, in proportion to n_z/n - 1/Z:
//     what the proxies there do not use.
//
// So all endpoints get the same in total. Zones are not considered if the proxy's own has no endpoint or is unknown
// (local is -1), or if n is below min_endpoints, and for at most percentage of the requests. With force all requests
// stay, as long as n_z is not below min_endpoints_in_zone.
//
// It returns nil if zones are not considered.
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

// weightShares gives each zone with a usable endpoint its weight, whatever the number of its endpoints. It returns nil
// if no such zone has a weight.
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

// withWeight divides endpoints into those of zones with a weight and those of zones of weight 0. If no zone has a weight, all are
// treated as if they had one.
func withWeight(list []*Endpoint, weights map[string]uint32) (weighted, rest []*Endpoint) {
	for _, e := range list {
		if zoneWeight(weights, e.Zone()) > 0 {
			weighted = append(weighted, e)
		} else {
			rest = append(rest, e)
		}
	}
	if len(rest) == 0 || len(weighted) == 0 {
		return list, nil
	}
	return weighted, rest
}

// zoneWeight returns the weight of a zone; 1 if it has none.
func zoneWeight(weights map[string]uint32, zone string) float64 {
	if w, named := weights[zone]; named {
		return float64(w)
	}
	return 1
}
