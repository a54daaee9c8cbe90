package translate

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
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

func sameTickets(a, b Tickets) bool { return a.Period == b.Period && bytes.Equal(a.Secret, b.Secret) }

// declareTicketKeys gives each Gateway that terminates TLS three secrets: that of the present period, which seals, that
// of the next one, because proxies hear of a rotation one after the other, and that of the one before. So a ticket
// is good for one period at least and two at most.
func (t *Translator) declareTicketKeys() {
	t.terminating = incremental.NewIndex(t.serving, "HTTPS listeners by Gateway",
		func(k listenerKey, l *config.Listener) []name {
			if len(l.Certificates) == 0 {
				return nil
			}
			return []name{k.Gateway}
		})
	t.ticketKeys = incremental.Map(t.engine, "ticket keys", t.owned,
		func(v *incremental.View, n name, uid types.UID) (*config.TicketKeys, bool) {
			if incremental.Count(v, t.terminating, n) == 0 {
				return nil, false
			}
			now, _ := incremental.Fetch(v, t.in.tickets.Collection, name{})
			if len(now.Secret) == 0 {
				return nil, false
			}
			out := &config.TicketKeys{Key: n.String()}
			for _, period := range []int64{now.Period, now.Period + 1, now.Period - 1} {
				key, err := ticketKey(now.Secret, n, uid, period)
				if err != nil { // of a length that cannot be had
					return nil, false
				}
				out.Keys = append(out.Keys, key)
			}
			return out, true
		}, sameMessage[*config.TicketKeys])
}

// ticketKey is the secret of a Gateway for a period. One that is made again under the same name has others.
func ticketKey(secret []byte, n name, uid types.UID, period int64) ([]byte, error) {
	info := "moongate ticket keys\n" + n.String() + "\n" + string(uid) + "\n" + strconv.FormatInt(period, 10)
	return hkdf.Key(sha256.New, secret, nil, info, sha256.Size)
}
