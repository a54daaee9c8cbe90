package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// object is what the dashboard reads of any Gateway API object.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		GatewayClassName string   `json:"gatewayClassName"`
		Hostnames        []string `json:"hostnames"`
		Listeners        []struct {
			Name     string `json:"name"`
			Hostname string `json:"hostname"`
			Port     int    `json:"port"`
			Protocol string `json:"protocol"`
		} `json:"listeners"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
		Addresses  []struct {
			Value string `json:"value"`
		} `json:"addresses"`
		Listeners []struct {
			Name           string      `json:"name"`
			AttachedRoutes int         `json:"attachedRoutes"`
			Conditions     []condition `json:"conditions"`
		} `json:"listeners"`
		Parents []struct {
			ParentRef  parentRef   `json:"parentRef"`
			Conditions []condition `json:"conditions"`
		} `json:"parents"`
		Ancestors []struct {
			AncestorRef parentRef   `json:"ancestorRef"`
			Conditions  []condition `json:"conditions"`
		} `json:"ancestors"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type parentRef struct {
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName"`
	Port        int    `json:"port"`
}

// String is "<namespace>/<name>", with listener and port where they are named.
func (p parentRef) String() string {
	s := p.Name
	if p.Namespace != "" {
		s = p.Namespace + "/" + s
	}
	if p.Kind != "" && p.Kind != "Gateway" {
		s = p.Kind + " " + s
	}
	if p.SectionName != "" {
		s += " " + p.SectionName
	}
	if p.Port != 0 {
		s += fmt.Sprintf(" :%d", p.Port)
	}
	return s
}

// badWhenTrue are the conditions that say something is wrong by being True.
var badWhenTrue = map[string]bool{"Conflicted": true, "PartiallyInvalid": true, "OverlappingTLSConfig": true, "InsecureFrontendValidationMode": true}

func badges(conditions []condition) []badge {
	out := make([]badge, len(conditions))
	for i, c := range conditions {
		class := "unknown"
		switch {
		case c.Status == "Unknown":
		case (c.Status == "True") != badWhenTrue[c.Type]:
			class = "ok"
		default:
			class = "bad"
		}
		out[i] = badge{c.Type, c.Status, c.Reason, c.Message, class}
	}
	return out
}

func anyBad(list []badge) bool {
	return slices.ContainsFunc(list, func(b badge) bool { return b.Class == "bad" })
}

// add sorts the objects into the tables of the page: what has trouble first, then by name.
func (p *page) add(items []any, counts *requestCounts) error {
	for _, item := range items {
		raw, err := json.Marshal(item)
		if err != nil {
			return err
		}
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		name := o.Metadata.Name
		if o.Metadata.Namespace != "" {
			name = o.Metadata.Namespace + "/" + name
		}
		if !strings.Contains(strings.ToLower(name+" "+strings.Join(o.Spec.Hostnames, " ")), strings.ToLower(p.Query)) {
			continue
		}
		switch {
		case o.Kind == "Gateway":
			p.Gateways = append(p.Gateways, o.gateway(name, counts))
		case strings.HasSuffix(o.Kind, "Route"):
			p.Routes = append(p.Routes, o.route(name, counts))
		default:
			p.Others = append(p.Others, objectRow{o.Kind, name, o.allConditions()})
		}
	}
	slices.SortStableFunc(p.Gateways, func(a, b gatewayRow) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(p.Routes, func(a, b routeRow) int {
		return cmp.Or(boolOrder(a.trouble, b.trouble), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(p.Others, func(a, b objectRow) int {
		return cmp.Or(boolOrder(anyBad(a.Conditions), anyBad(b.Conditions)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	p.cutRows()
	return nil
}

// cutRows keeps the page small enough for a browser and says what is not on it.
func (p *page) cutRows() {
	p.Hidden = max(len(p.Gateways)-maxRows, 0) + max(len(p.Routes)-maxRows, 0) + max(len(p.Others)-maxRows, 0)
	p.Gateways = p.Gateways[:min(len(p.Gateways), maxRows)]
	p.Routes = p.Routes[:min(len(p.Routes), maxRows)]
	p.Others = p.Others[:min(len(p.Others), maxRows)]
}

// boolOrder puts true first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (o *object) gateway(name string, counts *requestCounts) gatewayRow {
	row := gatewayRow{Name: name, Class: o.Spec.GatewayClassName, Conditions: badges(o.Status.Conditions)}
	for _, a := range o.Status.Addresses {
		row.Addresses = append(row.Addresses, a.Value)
	}
	for _, l := range o.Spec.Listeners {
		r := listenerRow{Name: l.Name, Protocol: l.Protocol, Hostname: l.Hostname, Port: l.Port,
			Requests: counts.byListener[name+"/"+l.Name]}
		for _, s := range o.Status.Listeners {
			if s.Name == l.Name {
				r.AttachedRoutes, r.Conditions = s.AttachedRoutes, badges(s.Conditions)
			}
		}
		row.Listeners = append(row.Listeners, r)
	}
	return row
}

func (o *object) route(name string, counts *requestCounts) routeRow {
	row := routeRow{Kind: o.Kind, Name: name, Hostnames: o.Spec.Hostnames, Requests: counts.byRoute[o.Kind+"/"+name]}
	for _, p := range o.Status.Parents {
		b := badges(p.Conditions)
		row.Parents = append(row.Parents, parentRow{p.ParentRef.String(), b})
		row.trouble = row.trouble || anyBad(b)
	}
	return row
}

func (o *object) allConditions() []badge {
	out := badges(o.Status.Conditions)
	for _, a := range o.Status.Ancestors {
		out = append(out, badges(a.Conditions)...)
	}
	return out
}

// requestCounts are sums of moongate_requests_total.
type requestCounts struct {
	total      uint64
	byListener map[string]uint64 // "<gateway>/<listener>"
	byRoute    map[string]uint64
	byOutcome  map[[2]string]uint64 // reason, code
}

func countRequests(g prometheus.Gatherer) *requestCounts {
	c := &requestCounts{byListener: map[string]uint64{}, byRoute: map[string]uint64{}, byOutcome: map[[2]string]uint64{}}
	if g == nil {
		return c
	}
	families, _ := g.Gather() // what could be gathered is shown; /metrics reports errors
	for _, f := range families {
		if f.GetName() != "moongate_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			label := make(map[string]string, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			n := uint64(m.GetCounter().GetValue())
			c.total += n
			c.byListener[label["gateway"]+"/"+label["listener"]] += n
			c.byRoute[label["route"]] += n
			c.byOutcome[[2]string{label["reason"], label["code"]}] += n
		}
	}
	return c
}

// outcomes lists how requests ended, most frequent first.
func (c *requestCounts) outcomes() []outcomeRow {
	out := make([]outcomeRow, 0, len(c.byOutcome))
	for k, n := range c.byOutcome {
		out = append(out, outcomeRow{k[0], k[1], n})
	}
	slices.SortFunc(out, func(a, b outcomeRow) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Code, b.Code))
	})
	return out[:min(len(out), maxRows)]
}
