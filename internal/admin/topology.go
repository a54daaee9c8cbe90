package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxRows limits each list of a response; ?q= narrows it down, and routes have pages.
	maxRows = 100
	// maxPageRows is the default number of routes of a page.
	maxPageRows = 50
	// maxEndpoints is the maximum number of endpoints that are shown of a backend, those first that are not healthy.
	maxEndpoints = 16
)

// topology is the response of /topology and the data of the page: the listeners, routes, backends and endpoints that requests use,
// with their counts.
type topology struct {
	Time     time.Time `json:"time"`
	Version  string    `json:"version"`
	NotReady string    `json:"notReady,omitempty"` // the reason; "" if it is ready
	// Note is what this process does not know, and which process does; "" if it knows everything.
	Note    string `json:"note,omitempty"`
	Counted bool   `json:"counted"` // this process counts requests
	Query   string `json:"query"`
	Trouble bool   `json:"trouble"` // only objects with problems were requested
	Failed  string `json:"failed,omitempty"`

	Problems     []finding `json:"problems"`
	MoreProblems int       `json:"moreProblems,omitempty"`
	Ignored      []Problem `json:"ignored"` // documents of unknown kinds

	Gateways     []gatewayRow `json:"gateways"`
	MoreGateways int          `json:"moreGateways,omitempty"`
	Routes       []routeRow   `json:"routes"`
	Offset       int          `json:"offset"`   // index of the first of Routes among those that match
	Limit        int          `json:"limit"`    // maximum number of routes of a page
	Matching     int          `json:"matching"` // number of routes that match the query
	AllRoutes    int          `json:"allRoutes"`
	Policies     []policyRow  `json:"policies"`
	Others       []objectRow  `json:"others"`
	Hidden       int          `json:"hidden,omitempty"` // number of policies and other objects that do not fit

	Bounds   []float64    `json:"bounds"` // of durations, in seconds
	Total    counts       `json:"total"`
	Outcomes []outcomeRow `json:"outcomes"`
}

type gatewayRow struct {
	Kind          string         `json:"kind"`
	Name          string         `json:"name"`
	Class         string         `json:"class,omitempty"`
	Parent        string         `json:"parent,omitempty"` // of a ListenerSet
	Addresses     []string       `json:"addresses,omitempty"`
	Conditions    []badge        `json:"conditions"`
	Listeners     []listenerRow  `json:"listeners"`
	MoreListeners int            `json:"moreListeners,omitempty"`
	Proxies       []GatewayProxy `json:"proxies,omitempty"`
	Alone         bool           `json:"alone,omitempty"` // it should have proxies, and none is connected
}

type listenerRow struct {
	Name           string  `json:"name"`
	Protocol       string  `json:"protocol"`
	Hostname       string  `json:"hostname"`
	Port           int     `json:"port"`
	AttachedRoutes int     `json:"attachedRoutes"`
	Counts         counts  `json:"counts"`
	Conditions     []badge `json:"conditions"`
	counted        string  // "<gateway>/<listener>" as in metrics
}

type routeRow struct {
	Kind          string      `json:"kind"`
	Name          string      `json:"name"`
	Hostnames     []string    `json:"hostnames"`
	MoreHostnames int         `json:"moreHostnames,omitempty"`
	Rules         []ruleRow   `json:"rules"`
	MoreRules     int         `json:"moreRules,omitempty"`
	Parents       []parentRow `json:"parents"`
	Counts        counts      `json:"counts"`
}

type ruleRow struct {
	Name         string       `json:"name"`
	Matches      []string     `json:"matches"`
	MoreMatches  int          `json:"moreMatches,omitempty"`
	Filters      []string     `json:"filters,omitempty"`
	Backends     []backendRef `json:"backends"`
	MoreBackends int          `json:"moreBackends,omitempty"`
}

// backendRef is a backendRef of a rule, and the backends that are made from it: several if protocols or policies differ, none if it
// is invalid.
type backendRef struct {
	Key    string       `json:"key"` // "<kind>/<namespace>/<name>/<port>"
	Weight int          `json:"weight"`
	Pools  []backendRow `json:"pools,omitempty"`
}

// backendRow is a Backend, with only some of its endpoints if there are many.
type backendRow struct {
	Name          string        `json:"name"`
	Panic         bool          `json:"panic,omitempty"`
	Healthy       int           `json:"healthy"`
	Total         int           `json:"total"`
	State         string        `json:"state"` // how many are healthy, in text
	Class         string        `json:"class"` // ok, bad or unknown
	Endpoints     []endpointRow `json:"endpoints"`
	MoreEndpoints int           `json:"moreEndpoints,omitempty"`
}

type endpointRow struct {
	Address     string `json:"address"`
	Health      string `json:"health"`
	Class       string `json:"class"` // ok, bad or unknown
	Terminating bool   `json:"terminating,omitempty"`
	Zone        string `json:"zone,omitempty"`
	InFlight    int64  `json:"inFlight"`
}

type parentRow struct {
	Name       string  `json:"name"`
	Conditions []badge `json:"conditions"`
}

type policyRow struct {
	Kind      string      `json:"kind"`
	Name      string      `json:"name"`
	Targets   []string    `json:"targets"`
	Ancestors []parentRow `json:"ancestors"`
	// Overrides are the policies that this one replaces in the configuration in force.
	Overrides []Override `json:"overrides,omitempty"`
}

type objectRow struct {
	Kind       string  `json:"kind"`
	Name       string  `json:"name"`
	Conditions []badge `json:"conditions"`
}

type outcomeRow struct {
	Reason   string `json:"reason"`
	Code     string `json:"code"` // "0" if no response was sent
	Requests uint64 `json:"requests"`
}

// badge is one condition.
type badge struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Class   string `json:"class"` // ok, bad or unknown
}

// Override describes the replacement of a more general policy by another.
type Override struct {
	Policy string   `json:"policy"` // the general one, as "BackendTrafficPolicy default/all"
	Fields []string `json:"fields"` // its fields that are not in force there, sorted
	Rules  int      `json:"rules"`  // number of rules of routes for which it does
}

// GatewayProxy is a proxy that serves a Gateway of a cluster.
type GatewayProxy struct {
	Pod     string `json:"pod"`
	Version string `json:"version,omitempty"`
	State   string `json:"state"` // current, or the problem
	Class   string `json:"class"` // ok, bad or unknown
}

// selection selects a part of the topology.
type selection struct {
	query         string
	trouble       bool
	offset, limit int
}

func selectionOf(r *http.Request) selection {
	number := func(name string, most int) int {
		n, _ := strconv.Atoi(r.FormValue(name))
		return min(max(n, 0), most)
	}
	return selection{query: r.FormValue("q"), trouble: r.FormValue("trouble") != "", offset: number("offset", 1<<30), limit: cmp.Or(number("limit", maxRows), maxPageRows)}
}

// fits reports whether an object is selected.
func (s selection) fits(e *entry) bool {
	return (!s.trouble || e.trouble) && e.fits(strings.ToLower(s.query))
}

func (s *Server) topology(w http.ResponseWriter, r *http.Request) {
	if t := s.look(r.Context(), selectionOf(r)); t != nil {
		writeCompactJSON(w, t)
	}
}

// look reads everything that a page shows. Only one runs at a time: others wait, so that many windows do not cost more than one
// after the other. It returns nil if ctx ends before its turn.
func (s *Server) look(ctx context.Context, sel selection) *topology {
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil
	}
	t := &topology{Time: time.Now(), Version: s.options.Version, Note: s.note(), Counted: !s.options.Uncounted && s.options.Gatherer != nil,
		Query: sel.query, Trouble: sel.trouble, Limit: sel.limit}
	if err := s.ready(); err != nil {
		t.NotReady = err.Error()
	}
	count := countRequests(s.options.Gatherer)
	t.Total, t.Outcomes, t.Bounds = count.total, count.outcomes(), count.bounds
	var status Status
	if s.options.Status != nil {
		status = s.options.Status()
	}
	if err := s.inventory.update(status.Items); err != nil {
		t.Failed = err.Error()
	}
	s.forget()
	backends := s.backendsByRef()
	t.add(s.inventory.all, sel, count, backends)
	s.join(t)
	for _, p := range status.Problems {
		if p.Ignored && !p.Warning && len(t.Ignored) < maxRows {
			t.Ignored = append(t.Ignored, p)
		}
	}
	found, unjudged := s.findings(status.Problems, backends)
	t.Problems = fairly(found, maxRows)
	t.MoreProblems = len(found) - len(t.Problems) + unjudged
	return t
}

// forget drops what was read of the objects some time after it was last needed; the caller must hold s.looking.
func (s *Server) forget() {
	if s.forgetting != nil {
		s.forgetting.Stop()
	}
	s.forgetting = time.AfterFunc(forgetAfter, func() {
		s.looking <- struct{}{}
		defer func() { <-s.looking }()
		s.inventory, s.judged, s.complained = inventory{}, nil, nil
	})
}

func (s *Server) note() string {
	if s.options.Note == nil {
		return ""
	}
	return s.options.Note()
}

// backendsByRef returns the backends by the backendRef from which they are made.
func (s *Server) backendsByRef() map[string][]Backend {
	byRef := map[string][]Backend{}
	if s.options.Backends == nil {
		return byRef
	}
	for _, b := range s.options.Backends() {
		key := refOf(b.Name)
		byRef[key] = append(byRef[key], b)
	}
	return byRef
}

// refOf returns the first four parts of a backend's name.
func refOf(name string) string {
	end := 0
	for range 4 {
		i := strings.IndexByte(name[end:], '/')
		if i < 0 {
			return name
		}
		end += i + 1
	}
	return name[:end-1]
}

// add adds the selected entries to the lists.
func (t *topology) add(all []*entry, sel selection, count *requestCounts, backends map[string][]Backend) {
	var routes []*entry
	for _, e := range all {
		if e.route != nil {
			t.AllRoutes++
		}
		switch {
		case !sel.fits(e):
		case e.route != nil:
			routes = append(routes, e)
		case e.gateway != nil && len(t.Gateways) == maxRows:
			t.MoreGateways++
		case e.gateway != nil:
			t.Gateways = append(t.Gateways, e.gateway.with(count))
		case len(t.Policies)+len(t.Others) == maxRows:
			t.Hidden++
		case e.policy != nil:
			t.Policies = append(t.Policies, *e.policy)
		default:
			t.Others = append(t.Others, *e.other)
		}
	}
	t.Matching = len(routes)
	if sel.offset >= len(routes) { // the page no longer exists
		sel.offset = max(len(routes)-1, 0) / sel.limit * sel.limit
	}
	t.Offset = sel.offset
	for _, e := range routes[sel.offset:min(sel.offset+sel.limit, len(routes))] {
		t.Routes = append(t.Routes, e.route.with(of(count.byRoute, e.kind+"/"+e.name), backends))
	}
}

// with returns the row with its counts.
func (g *gatewayRow) with(count *requestCounts) gatewayRow {
	row := *g
	row.Listeners = slices.Clone(g.Listeners)
	for i := range row.Listeners {
		row.Listeners[i].Counts = of(count.byListener, row.Listeners[i].counted)
	}
	return row
}

// with returns the row with its counts, and with the endpoints of its backends.
func (r *routeRow) with(c counts, backends map[string][]Backend) routeRow {
	row := *r
	row.Counts, row.Rules = c, slices.Clone(r.Rules)
	shown := map[string]bool{} // so that each is listed once
	for i := range row.Rules {
		row.Rules[i].Backends = slices.Clone(row.Rules[i].Backends)
		for j := range row.Rules[i].Backends {
			b := &row.Rules[i].Backends[j]
			if shown[b.Key] || len(shown) == maxShownBackends {
				continue
			}
			shown[b.Key] = true
			all := backends[b.Key]
			for k := range all[:min(len(all), maxShownMatches)] {
				b.Pools = append(b.Pools, all[k].row())
			}
		}
	}
	return row
}

// row returns what is shown of a backend.
func (b *Backend) row() backendRow {
	row := backendRow{Name: b.Name, Panic: b.Panic, Total: len(b.Endpoints), Endpoints: []endpointRow{}, MoreEndpoints: max(len(b.Endpoints)-maxEndpoints, 0)}
	var last []*Endpoint // the healthy ones
	for i := range b.Endpoints {
		if b.Endpoints[i].Health == healthy {
			row.Healthy++
			last = append(last, &b.Endpoints[i])
		} else if len(row.Endpoints) < maxEndpoints {
			row.Endpoints = append(row.Endpoints, b.Endpoints[i].row())
		}
	}
	for _, e := range last[:min(len(last), maxEndpoints-len(row.Endpoints))] {
		row.Endpoints = append(row.Endpoints, e.row())
	}
	row.State, row.Class = b.state(row.Healthy)
	return row
}

// state returns the state of a backend with that many healthy endpoints, and its class.
func (b *Backend) state(healthy int) (state, class string) {
	total, bad, elsewhere := len(b.Endpoints), 0, 0
	for i := range b.Endpoints {
		switch {
		case b.Endpoints[i].Health == HealthElsewhere:
			elsewhere++
		case b.Endpoints[i].class() == "bad":
			bad++
		}
	}
	switch {
	case total == 0:
		return "no endpoints", "bad"
	case elsewhere == total:
		if total == 1 {
			return "1 endpoint, judged by each proxy", "unknown"
		}
		return fmt.Sprintf("%d endpoints, judged by each proxy", total), "unknown"
	case healthy == total:
		class = "ok"
	case bad == total:
		class = "bad"
	default:
		class = "unknown"
	}
	return fmt.Sprintf("%d of %d healthy", healthy, total), class
}

// Values of Endpoint.Health that are neither good nor bad.
const (
	healthy = "healthy"
	unknown = "unknown"
	// HealthElsewhere is used if other processes determine the health of an endpoint.
	HealthElsewhere = "judged by each proxy"
)

func (e *Endpoint) row() endpointRow {
	return endpointRow{e.Address, e.Health, e.class(), e.Terminating, e.Zone, e.RequestsInFlight}
}

func (e *Endpoint) class() string {
	switch e.Health {
	case healthy:
		return "ok"
	case unknown, HealthElsewhere:
		return "unknown"
	}
	return "bad"
}

// join adds what is not from objects.
func (s *Server) join(t *topology) {
	if s.options.Proxies != nil {
		proxies := s.options.Proxies()
		for i := range t.Gateways {
			if of, served := proxies[t.Gateways[i].Name]; served && t.Gateways[i].Kind == "Gateway" {
				t.Gateways[i].Proxies, t.Gateways[i].Alone = of[:min(len(of), maxRows)], len(of) == 0
			}
		}
	}
	if s.options.Overrides != nil && len(t.Policies) > 0 {
		overrides := s.options.Overrides()
		for i := range t.Policies {
			of := overrides[t.Policies[i].Kind+" "+t.Policies[i].Name]
			t.Policies[i].Overrides = of[:min(len(of), maxRows)]
		}
	}
}
