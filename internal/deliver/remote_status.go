package deliver

import (
	"maps"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
)

// RemoteStatus is a snapshot of a Remote, for the dashboard.
type RemoteStatus struct {
	Leading    bool            `json:"leading"`
	Epoch      string          `json:"epoch,omitempty"`
	Generation uint64          `json:"generation"`
	Gateways   []RemoteGateway `json:"gateways"` // sorted by name
}

// RemoteGateway is a Gateway and its proxies, or several Gateways and the proxies of all.
type RemoteGateway struct {
	Gateway    string        `json:"gateway"`          // "<namespace>/<name>", with config.MergedName for merged Gateways
	Merged     []string      `json:"merged,omitempty"` // merged Gateways with listeners; sorted
	Generation uint64        `json:"generation"`       // of its last change
	Resources  int           `json:"resources"`
	Proxies    []RemoteProxy `json:"proxies"` // sorted by pod
}

// RemoteProxy is a proxy that is connected, or ready according to the cluster.
type RemoteProxy struct {
	Pod       string            `json:"pod"`
	Version   string            `json:"version,omitempty"`
	Ready     bool              `json:"ready"`
	Connected bool              `json:"connected"`
	Acked     uint64            `json:"acked"` // generation; 0 if none in this epoch
	Overdue   bool              `json:"overdue,omitempty"`
	Error     string            `json:"error,omitempty"`     // of the last refused generation
	Listeners map[string]string `json:"listeners,omitempty"` // those that it cannot serve, and why
	Rejected  map[string]string `json:"rejected,omitempty"`  // resources, and why
	// Unavailable is what it reports if it cannot reach the Redis server of global rate limits.
	Unavailable string `json:"unavailable,omitempty"`
}

// Status returns the state of all proxies.
func (r *Remote) Status() RemoteStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RemoteStatus{Leading: r.epoch != "", Epoch: r.epoch, Generation: r.parts.Generation(), Gateways: []RemoteGateway{}}
	together := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.gateways)) {
		g := r.gateways[name]
		part := r.parts.Part(name)
		row := RemoteGateway{Gateway: name, Generation: part.Generation(), Resources: part.Len(), Proxies: []RemoteProxy{}}
		if merged(name) {
			row.Merged = part.Gateways()
			for _, gateway := range row.Merged {
				together[gateway] = true
			}
		}
		for _, podName := range slices.Sorted(maps.Keys(g.pods)) {
			p := g.pods[podName]
			row.Proxies = append(row.Proxies, RemoteProxy{Pod: podName, Version: p.version, Ready: p.ready, Connected: p.stream != nil,
				Acked: p.acked, Overdue: p.overdue, Error: p.refusal, Listeners: p.listeners, Rejected: printed(p.rejected), Unavailable: p.unavailable})
		}
		s.Gateways = append(s.Gateways, row)
	}
	// Merged Gateways without their own proxies have no row: a controller that has restarted does not know them either.
	s.Gateways = slices.DeleteFunc(s.Gateways, func(row RemoteGateway) bool {
		g := r.gateways[row.Gateway]
		return together[row.Gateway] && !g.runs && len(g.pods)+len(g.uids) == 0
	})
	return s
}

// merged reports whether a name stands for the proxies of several Gateways.
func merged(gateway string) bool {
	_, name, _ := strings.Cut(gateway, "/")
	_, is := config.MergedClass(name)
	return is
}

// Resources returns the configuration of the proxies of a Gateway ("<namespace>/<name>"), including private keys, sorted by
// config.CompareID; nil if the Gateway is not known. The Resources are shared and must not be modified.
func (r *Remote) Resources(gateway string) []*config.Resource {
	r.mu.Lock()
	var all []*config.Resource
	if r.parts.Has(gateway) {
		all = r.parts.Part(gateway).Unsorted()
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	return all
}

func printed(rejected map[config.ID]string) map[string]string {
	if len(rejected) == 0 {
		return nil
	}
	out := make(map[string]string, len(rejected))
	for id, message := range rejected {
		if id == (config.ID{}) {
			out["unknown"] = message
		} else {
			out[id.String()] = message
		}
	}
	return out
}
