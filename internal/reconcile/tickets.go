package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/moongate-dev/moongate/internal/translate"
)

const (
	// ticketPeriod is how long a key encrypts new TLS session tickets. It decrypts them for one more period.
	ticketPeriod = 12 * time.Hour
	// ticketLook is the interval in which the clock and the secret are checked: the clock may jump, and the secret may be replaced.
	ticketLook = time.Minute
)

// Tickets returns the current secret for TLS session tickets. It is immutable.
type Tickets struct {
	// Secret returns that of translate.Tickets; if it fails there are no tickets.
	Secret func() ([]byte, error)
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	every time.Duration // 0 means ticketLook
}

// Current returns the present value for the translator: for the first Update, and for later ones by Run.
func (k *Tickets) Current() translate.Tickets {
	secret, err := k.Secret()
	if err != nil {
		k.Logger.Error("TLS sessions are not resumed, because their secret cannot be read", "error", err)
		return translate.Tickets{}
	}
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	return translate.Tickets{Secret: secret, Period: now().Unix() / int64(ticketPeriod/time.Second)}
}

// Run passes changes of Current to the translator by update, which is that of a Standalone or a Cluster, until ctx ends.
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
