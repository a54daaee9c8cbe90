package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/moongate-dev/moongate/internal/translate"
)

const (
	// ticketPeriod is how long a key seals TLS session tickets. It opens them for one more.
	ticketPeriod = 12 * time.Hour
	// ticketLook is how often the clock is looked at: it may jump, and the secret may be replaced.
	ticketLook = time.Minute
)

// Tickets says at each moment what TLS session tickets are sealed with. It is immutable.
type Tickets struct {
	// Secret is that of translate.Tickets; where it fails there are no tickets.
	Secret func() ([]byte, error)
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	every time.Duration // 0 is ticketLook
}

// Current returns what the translator is to be given now: with the first Update, and by Run with later ones.
func (k *Tickets) Current() translate.Tickets {
	secret, err := k.Secret()
	if err != nil {
		k.Logger.Error("TLS sessions are not resumed, because their secret cannot be had", "error", err)
		return translate.Tickets{}
	}
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	return translate.Tickets{Secret: secret, Period: now().Unix() / int64(ticketPeriod/time.Second)}
}

// Run gives the translator what has become of Current, by update, which is a Standalone's or a Cluster's, until ctx ends.
func (k *Tickets) Run(ctx context.Context, update func(edit func(*translate.Translator)) Outcome) {
	every := k.every
	if every == 0 {
		every = ticketLook
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var given translate.Tickets
	for {
		if now := k.Current(); now.Period != given.Period || !bytes.Equal(now.Secret, given.Secret) {
			update(func(t *translate.Translator) { t.SetTickets(now) })
			given = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
