package upstream

import "time"

// EndpointState is the state of one endpoint at a moment.
type EndpointState struct {
	Address string
	Zone    string // "" if unknown
	Health  Health
	// Until is when an endpoint that is avoided or ejected is tried again; zero if a check decides that, or if the
	// endpoint is neither.
	Until time.Time
	// Terminating means that the endpoint is about to be removed: it is only chosen if no other is ready.
	Terminating bool
	// Weight is the factor of the endpoint's share of requests, 1 for those with the greatest weight. 0 means that it
	// is not chosen, because it is terminating.
	Weight                  float64
	InFlight, Open, Idle    int64 // requests, connections, and idle connections
	Connects, ConnectErrors int64 // connections made since the endpoint was added, and failed connects
}

// ZoneShare is the share of requests for the endpoints of one zone, from 0 to 1.
type ZoneShare struct {
	Zone  string
	Share float64
}

// BackendState is the state of a backend at a moment.
type BackendState struct {
	Key       string
	Endpoints []EndpointState // in the order of the Endpoints resource
	// Zones are the shares of zones, sorted; nil if zones are not considered. What they lack of 1 goes to all endpoints
	// equally.
	Zones []ZoneShare
	// Panic means that so few endpoints are healthy that health is ignored.
	Panic bool
}

// State returns the current state of the backend and its variants. It is for people, not for requests.
func (b *Backend) State(now time.Time) BackendState {
	list := b.list.Load()
	s := BackendState{Key: b.key, Panic: len(list.usable) > 0 && b.health.panics()}
	var sums *shares
	if l := list.balancer; l != nil {
		if sums = l.shares.Load(); sums != nil {
			for i, end := range sums.ending {
				before := uint64(0)
				if i > 0 {
					before = sums.ending[i-1]
				}
				s.Zones = append(s.Zones, ZoneShare{l.zones[i].zone, float64(end-before) / (1 << 32)})
			}
		}
	}
	weights := list.weights(sums != nil)
	for _, e := range list.all {
		at := EndpointState{Address: e.String(), Zone: e.Zone(), Health: e.Health(), Until: e.passedOverUntil(now), Terminating: e.terminating.Load(), Weight: weights[e]}
		at.add(e.Stats())
		s.Endpoints = append(s.Endpoints, at)
	}
	for _, v := range b.variantList() {
		of := map[endpointKey]*Endpoint{}
		for _, e := range v.Endpoints() {
			of[e.address] = e
		}
		for i, e := range list.all {
			if o := of[e.address]; o != nil {
				s.Endpoints[i].add(o.Stats())
			}
		}
	}
	return s
}

func (s *EndpointState) add(of Stats) {
	s.InFlight += of.InFlight
	s.Open += of.Open
	s.Idle += of.Idle
	s.Connects += of.Dialled
	s.ConnectErrors += of.Failures
}

// weights returns EndpointState.Weight of the endpoints that can be chosen. If requests are distributed among zones, it
// is the weight within the endpoint's zone.
func (l *endpointList) weights(zoned bool) map[*Endpoint]float64 {
	of := make(map[*Endpoint]float64, len(l.usable))
	for _, e := range l.usable {
		of[e] = 1
	}
	if l.balancer == nil {
		return of
	}
	pools := []*pool{l.balancer.all}
	if l.balancer.spare != nil {
		pools = append(pools, l.balancer.spare)
	}
	if zoned {
		pools = l.balancer.zones
	}
	for _, p := range pools {
		if w := p.weights.Load(); w != nil {
			for i, e := range p.list {
				of[e] = float64(w.list[i]) / maxWeight
			}
		}
	}
	return of
}

// passedOverUntil returns EndpointState.Until.
func (e *Endpoint) passedOverUntil(now time.Time) (until time.Time) {
	h := e.health
	switch e.Health() {
	case Avoided:
		until = time.Unix(0, e.avoidUntil.Load())
	case Ejected:
		if until = time.Unix(0, h.ejectedUntil.Load()); h.marks.Load()&markOutlier != 0 {
			until = time.Time{}
			h.backend.ejecting.Lock()
			if o := h.outlier.Load(); o != nil {
				until = o.until
			}
			h.backend.ejecting.Unlock()
		}
	}
	if until.Before(now) {
		return time.Time{}
	}
	return until
}
