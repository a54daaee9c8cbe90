package cli

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/explain"
)

// maxShownNames is the maximum number of names that are shown of one certificate.
const maxShownNames = 100

// certificatesOf returns the server certificates of listeners, the first to expire first.
func certificatesOf(resources []*config.Resource) []admin.Certificate {
	shownBy := map[string][]string{}
	for _, r := range resources {
		l := r.GetListener()
		for _, key := range l.ServerCertificates() {
			shownBy[key] = append(shownBy[key], l.Key)
		}
	}
	byName := map[string]admin.Certificate{} // parts of several Gateways may contain the same one
	for _, r := range resources {
		if c := r.GetCertificate(); c != nil {
			byName[c.Key] = certificateOf(c, shownBy[c.Key])
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b admin.Certificate) int {
		return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Name, b.Name))
	})
}

// certificateOf reads the leaf certificate only, and not its key.
func certificateOf(c *config.Certificate, listeners []string) admin.Certificate {
	kind, name, _ := strings.Cut(c.Key, "/")
	slices.Sort(listeners)
	shown := admin.Certificate{Name: kind + " " + name, Listeners: slices.Compact(listeners)}
	block, _ := pem.Decode(c.ChainPem)
	if len(c.ChainPem) == 0 {
		shown.Problem = "its Secret cannot be read; proxies that have the certificate keep it"
		return shown
	}
	if block == nil {
		shown.Problem = "it has no PEM block"
		return shown
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		shown.Problem = "the certificate cannot be read"
		return shown
	}
	shown.Subject, shown.Issuer, shown.NotBefore, shown.NotAfter = leaf.Subject.String(), leaf.Issuer.String(), leaf.NotBefore, leaf.NotAfter
	shown.Names = slices.Clone(leaf.DNSNames[:min(len(leaf.DNSNames), maxShownNames)])
	for _, ip := range leaf.IPAddresses[:min(len(leaf.IPAddresses), maxShownNames)] {
		shown.Names = append(shown.Names, ip.String())
	}
	return shown
}

// overridesOf returns the settings that policies replace, by policy.
func overridesOf(resources []*config.Resource) map[string][]admin.Override {
	type pair struct{ policy, hidden string }
	type place struct { // a rule, which occurs once for each Gateway to which it is attached
		pair
		id   config.ID
		rule int
	}
	fields, rules, counted := map[pair]map[string]bool{}, map[pair]int{}, map[place]bool{}
	add := func(id config.ID, rule int, t *config.RuleTraffic) {
		for _, h := range t.GetHidden() {
			policy, _, _ := strings.Cut(t.Policy, ", merged with ") // the most specific one
			kind, _, _ := strings.Cut(policy, " ")
			p := pair{policy, kind + " " + h.Policy}
			if fields[p] == nil {
				fields[p] = map[string]bool{}
			}
			for _, f := range h.Fields {
				fields[p][f] = true
			}
			if at := (place{p, id, rule}); !counted[at] {
				counted[at] = true
				rules[p]++
			}
		}
	}
	for _, r := range resources {
		id := r.ID()
		for i, rule := range r.GetRoute().GetRules() {
			add(id, i, rule.Traffic)
		}
		add(id, 0, r.GetL4Route().GetTraffic())
	}
	out := map[string][]admin.Override{}
	for p, names := range fields {
		out[p.policy] = append(out[p.policy], admin.Override{Policy: p.hidden, Fields: slices.Sorted(maps.Keys(names)), Rules: rules[p]})
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b admin.Override) int { return cmp.Compare(a.Policy, b.Policy) })
	}
	return out
}

// backendsOf returns the backends of the configuration, without their health, which only proxies know.
func backendsOf(resources []*config.Resource) (all []admin.Backend) {
	endpoints := map[string][]*config.Endpoint{}
	for _, r := range resources {
		if e := r.GetEndpoints(); e != nil {
			endpoints[e.Key] = e.Endpoints
		}
	}
	for _, r := range resources {
		b := r.GetBackend()
		if b == nil {
			continue
		}
		shown := admin.Backend{Name: b.Key, Endpoints: []admin.Endpoint{}}
		for _, e := range endpoints[b.Key] {
			shown.Endpoints = append(shown.Endpoints, admin.Endpoint{Address: joinAddress(e), Health: admin.HealthElsewhere, Terminating: e.Terminating, Zone: e.Zone})
		}
		all = append(all, shown)
	}
	slices.SortFunc(all, func(a, b admin.Backend) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b admin.Backend) bool { return a.Name == b.Name })
}

func joinAddress(e *config.Endpoint) string {
	if strings.Contains(e.Address, ":") {
		return fmt.Sprintf("[%s]:%d", e.Address, e.Port)
	}
	return fmt.Sprintf("%s:%d", e.Address, e.Port)
}

// explained answers a question in a world.
func explained(world explain.World, q admin.Question) (*admin.Explanation, error) {
	var ask *explain.Question
	var err error
	if isRequest(q.URL) {
		ask, err = explain.NewQuestion(cmp.Or(q.Method, http.MethodGet), q.URL, q.Headers)
	} else {
		ask, err = explain.NewConnection(q.URL)
	}
	if err != nil {
		return nil, err
	}
	answer, err := explain.Explain(world, ask)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := answer.Print(&text); err != nil {
		return nil, err
	}
	return &admin.Explanation{Steps: answer, Text: text.String()}, nil
}

// noPlace is used if the places of objects in manifests are not known.
func noPlace(string, string, string) string { return "" }

// proxiesOf returns the proxies of each Gateway, merged or not, with their problems.
func proxiesOf(gateways []deliver.RemoteGateway) map[string][]admin.GatewayProxy {
	out := map[string][]admin.GatewayProxy{}
	for _, g := range gateways {
		out[g.Gateway] = []admin.GatewayProxy{}
		for _, p := range g.Proxies {
			shown := admin.GatewayProxy{Pod: p.Pod, Version: p.Version, State: "current", Class: "ok"}
			switch {
			case p.Error != "":
				shown.State, shown.Class = "refused the configuration: "+p.Error, "bad"
			case len(p.Rejected) > 0:
				shown.State, shown.Class = fmt.Sprintf("cannot carry out %d resources", len(p.Rejected)), "bad"
			case len(p.Listeners) > 0:
				shown.State, shown.Class = fmt.Sprintf("cannot serve %d listeners", len(p.Listeners)), "bad"
			case p.Overdue:
				shown.State, shown.Class = "has not acknowledged the configuration in time", "bad"
			case !p.Connected:
				shown.State, shown.Class = "not connected", "unknown"
			case p.Unavailable != "":
				shown.State, shown.Class = p.Unavailable, "bad"
			case !p.Ready:
				shown.State, shown.Class = "not ready", "unknown"
			case p.Acked < g.Generation:
				shown.State, shown.Class = "a change is on its way", "unknown"
			}
			out[g.Gateway] = append(out[g.Gateway], shown)
		}
	}
	for _, g := range gateways {
		for _, gateway := range g.Merged { // its own proxies may not have terminated yet
			out[gateway] = out[g.Gateway]
		}
	}
	return out
}
