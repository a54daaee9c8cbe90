package translate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
)

// Tickets contains the secret from which the keys of TLS session tickets and of persistent sessions are derived.
type Tickets struct {
	// Secret is at least 32 random bytes, the same in all processes that may become leader one after the other. Without it, proxies
	// do not resume TLS sessions, and there is no session persistence.
	Secret []byte
	// Period is the number of the present key period. It grows by one with each rotation of the keys.
	Period int64
}

// SetTickets sets new Tickets; the Secret must not be modified afterwards.
func (t *Translator) SetTickets(now Tickets) { t.in.tickets.Set(name{}, now) }

// ticketKeys contains the keys for Gateways that terminate TLS or have session persistence.
type ticketKeys struct {
	terminating *incremental.Index[name, listenerKey, *config.Listener] // by Gateway
	// ruleSessions and backendSessions are the routes and backends with session persistence, by Gateway.
	ruleSessions    *incremental.Index[name, routePart, *config.Resource]
	backendSessions *incremental.Index[name, sessionRoute, []name]
	all             *incremental.Collection[name, *config.TicketKeys]
}

// newTicketKeys derives the secrets of each Gateway that needs them.
func newTicketKeys(e *incremental.Engine,
	tickets *incremental.Collection[name, Tickets],
	gateways *gateways, listenerStates *listenerStates, routes *routes, backends *backends) *ticketKeys {
	tk := &ticketKeys{}
	tk.declareSessions(e, routes, backends)
	tk.terminating = incremental.NewIndex(listenerStates.serving, "HTTPS listeners by Gateway",
		func(k listenerKey, l *config.Listener) []name {
			if len(l.ServerCertificates()) == 0 {
				return nil
			}
			return []name{k.Gateway}
		})
	// Only whether there are any matters, not how many.
	ofRules, ofBackends := incremental.Keys(tk.ruleSessions, "Gateways with sessions of rules"), incremental.Keys(tk.backendSessions, "Gateways with sessions of backends")
	withTLS := incremental.Keys(tk.terminating, "Gateways with HTTPS listeners")
	tk.all = incremental.Map(e, "ticket keys", gateways.managed,
		func(v *incremental.View, n name, g managedGateway) (*config.TicketKeys, bool) {
			has := func(of *incremental.Collection[name, struct{}]) bool {
				_, is := incremental.Fetch(v, of, n)
				return is
			}
			sessions := has(ofRules) || has(ofBackends)
			if !sessions && !has(withTLS) {
				return nil, false
			}
			now, _ := incremental.Fetch(v, tickets, name{})
			keys := &config.TicketKeys{Key: n.String(), Merged: g.Merged.String(), Keys: certificate.TicketSecrets(now.Secret, n.String(), g.UID, now.Period)}
			if sessions {
				keys.SessionKeys = certificate.SessionSecrets(now.Secret, n.String(), g.UID, now.Period)
			}
			return keys, len(keys.Keys) > 0
		}, sameMessage[*config.TicketKeys])
	return tk
}

// declareSessions finds the Gateways with persistent sessions.
func (tk *ticketKeys) declareSessions(e *incremental.Engine, routes *routes, backends *backends) {
	tk.ruleSessions = incremental.NewIndex(routes.configs, "routes with sessions by Gateway", func(_ routePart, r *config.Resource) []name {
		for _, rule := range r.GetRoute().GetRules() {
			if rule.SessionPersistence != nil {
				return gatewaysOf(r)
			}
		}
		return nil
	})
	// An edit of a route that changes neither its attachments nor its backends does not affect these collections.
	used := incremental.FlatMap(e, "routes to a backend with sessions", backends.all, func(v *incremental.View, id backendID, b *config.Backend) (all []incremental.Entry[sessionRoute, struct{}]) {
		if b.SessionPersistence == nil {
			return nil
		}
		for _, part := range incremental.Lookup(v, backends.users, id) {
			all = append(all, incremental.Entry[sessionRoute, struct{}]{Key: sessionRoute{id, part.Route}})
		}
		return slices.CompactFunc(all, func(a, b incremental.Entry[sessionRoute, struct{}]) bool { return a.Key == b.Key })
	}, same[struct{}])
	reached := incremental.Map(e, "Gateways with a backend's sessions", used, func(v *incremental.View, r sessionRoute, _ struct{}) (all []name, _ bool) {
		a, _ := incremental.Fetch(v, routes.attachments, r.Route)
		if a == nil {
			return nil, false
		}
		for _, l := range a.Listeners {
			all = append(all, l.Gateway)
		}
		slices.SortFunc(all, name.Compare)
		return slices.Compact(all), true
	}, slices.Equal[[]name])
	tk.backendSessions = incremental.NewIndex(reached, "backends with sessions by Gateway", func(_ sessionRoute, gateways []name) []name { return gateways })
}

// sessionRoute is a route to a backend with session persistence.
type sessionRoute struct {
	Backend backendID
	Route   kindName
}

func (r sessionRoute) Compare(o sessionRoute) int {
	return cmp.Or(r.Backend.Compare(o.Backend), r.Route.Compare(o.Route))
}

// gatewaysOf returns the Gateways to which a route is attached, without duplicates.
func gatewaysOf(r *config.Resource) (all []name) {
	for _, at := range r.Attachments() {
		gateway, _ := config.SplitListenerKey(at.Listener)
		namespace, n, _ := strings.Cut(gateway, "/")
		if g := (name{namespace, n}); !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}
