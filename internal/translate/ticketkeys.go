package translate

import (
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
)

// Tickets is what the keys of TLS session tickets, and those of persistent sessions, are derived from.
type Tickets struct {
	// Secret is at least 32 bytes that nobody can guess, the same in all that may lead one after the other. Without
	// one proxies resume no TLS session, and no session persists.
	Secret []byte
	// Period is the number of the present one: it grows by one with each rotation of the keys.
	Period int64
}

// SetTickets tells what has changed of Tickets; the Secret must not be modified afterwards.
func (t *Translator) SetTickets(now Tickets) { t.in.tickets.Set(name{}, now) }

// ticketKeys are those of Gateways that terminate TLS, or have sessions persist.
type ticketKeys struct {
	terminating *incremental.Index[name, listenerKey, *config.Listener] // by Gateway
	// ruleSessions and backendSessions are the routes and backends that have sessions persist, by Gateway.
	ruleSessions    *incremental.Index[name, routePart, *config.Resource]
	backendSessions *incremental.Index[name, backendKey, []name]
	all             *incremental.Collection[name, *config.TicketKeys]
}

// newTicketKeys gives each Gateway that needs them its secrets.
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
	tk.all = incremental.Map(e, "ticket keys", gateways.managed,
		func(v *incremental.View, n name, g managedGateway) (*config.TicketKeys, bool) {
			sessions := incremental.Count(v, tk.ruleSessions, n)+incremental.Count(v, tk.backendSessions, n) > 0
			if !sessions && incremental.Count(v, tk.terminating, n) == 0 {
				return nil, false
			}
			now, _ := incremental.Fetch(v, tickets, name{})
			keys := &config.TicketKeys{Key: n.String(), Keys: certificate.TicketSecrets(now.Secret, n.String(), g.UID, now.Period)}
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
	used := incremental.Map(e, "Gateways with a backend's sessions", backends.all, func(v *incremental.View, k backendKey, b *config.Backend) (all []name, _ bool) {
		if b.SessionPersistence == nil {
			return nil, false
		}
		for _, route := range incremental.Lookup(v, backends.users, backendID(b.Key)) {
			r, _ := incremental.Fetch(v, routes.configs, route)
			all = append(all, gatewaysOf(r)...)
		}
		slices.SortFunc(all, name.Compare)
		return slices.Compact(all), true
	}, slices.Equal[[]name])
	tk.backendSessions = incremental.NewIndex(used, "backends with sessions by Gateway", func(_ backendKey, gateways []name) []name { return gateways })
}

// gatewaysOf are those that a route is attached to, distinct.
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
