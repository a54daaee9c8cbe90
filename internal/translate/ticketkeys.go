package translate

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
)

// Tickets is what the keys of TLS session tickets are derived from.
type Tickets struct {
	// Secret is at least 32 bytes that nobody can guess, the same in all that may lead one after the other. Without
	// one proxies resume no session.
	Secret []byte
	// Period is the number of the present one: it grows by one with each rotation of the keys.
	Period int64
}

// SetTickets tells what has changed of Tickets; the Secret must not be modified afterwards.
func (t *Translator) SetTickets(now Tickets) { t.in.tickets.Set(name{}, now) }

// ticketKeys are those of Gateways that terminate TLS.
type ticketKeys struct {
	terminating *incremental.Index[name, listenerKey, *config.Listener] // by Gateway
	all         *incremental.Collection[name, *config.TicketKeys]
}

// newTicketKeys gives each Gateway that terminates TLS its secrets.
func newTicketKeys(e *incremental.Engine,
	tickets *incremental.Collection[name, Tickets],
	gateways *gateways, listenerStates *listenerStates) *ticketKeys {
	tk := &ticketKeys{}
	tk.terminating = incremental.NewIndex(listenerStates.serving, "HTTPS listeners by Gateway",
		func(k listenerKey, l *config.Listener) []name {
			if len(l.ServerCertificates()) == 0 {
				return nil
			}
			return []name{k.Gateway}
		})
	tk.all = incremental.Map(e, "ticket keys", gateways.managed,
		func(v *incremental.View, n name, g managedGateway) (*config.TicketKeys, bool) {
			if incremental.Count(v, tk.terminating, n) == 0 {
				return nil, false
			}
			now, _ := incremental.Fetch(v, tickets, name{})
			keys := certificate.TicketSecrets(now.Secret, n.String(), g.UID, now.Period)
			return &config.TicketKeys{Key: n.String(), Keys: keys}, len(keys) > 0
		}, sameMessage[*config.TicketKeys])
	return tk
}
