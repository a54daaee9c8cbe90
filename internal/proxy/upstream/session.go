package upstream

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/session"
)

// CountSession counts a request of a persistent session.
func (b *Backend) CountSession(s observe.Session) { b.totals().sessions[s].Add(1) }

// Sessions says how sessions with the backend persist where the rule says nothing of it; nil is that they do not.
func (b *Backend) Sessions() *session.Settings {
	if b.base != nil {
		b = b.base
	}
	return b.sessions.Load()
}

// SessionID is what tokens name the backend by: the same for all that are reached by the same port of a Service.
func (b *Backend) SessionID() uint64 { return b.sessionID }

// SessionID is what tokens name the endpoint by: who is behind the address where that is known, else the address.
func (e *Endpoint) SessionID() uint64 { return e.sessionID.Load() }

// SessionEndpointAs returns the endpoint of an ID for a request of a Gateway, see PickAs, a terminating one too. nil is that it is not there any more, or that its last
// connect failed a moment ago, or a policy has found it unhealthy, and there are others, or that it is barred.
func (b *Backend) SessionEndpointAs(i *Identity, id uint64) *Endpoint {
	for {
		as := b.As(i)
		if as == nil {
			return nil
		}
		list := as.list.Load()
		at, found := slices.BinarySearchFunc(list.bySession, id, func(e *Endpoint, id uint64) int { return cmp.Compare(e.SessionID(), id) })
		if !found {
			return nil
		}
		e := list.bySession[at]
		if i == nil || e.transport.tls == nil || e.transport.own || e.backend.identity == i {
			if e.barred() || !e.fitForSession() && len(list.all) > 1 {
				return nil
			}
			return e
		}
	}
}

// newEndpointList makes a list that is complete.
func newEndpointList(all, usable []*Endpoint) *endpointList {
	l := &endpointList{all: all, usable: usable, bySession: slices.Clone(all)}
	slices.SortFunc(l.bySession, func(a, b *Endpoint) int { return cmp.Compare(a.SessionID(), b.SessionID()) })
	return l
}

func backendSessionID(key string) uint64 { return shortHash([]byte(config.ServicePort(key))) }

// endpointSessionID is of config.Endpoint.identity and the port, or of the address.
func endpointSessionID(identity uint64, address netip.AddrPort) uint64 {
	b := make([]byte, 0, 64)
	if identity != 0 {
		b = binary.BigEndian.AppendUint64(b, identity)
		return shortHash(binary.BigEndian.AppendUint16(b, address.Port()))
	}
	return shortHash(address.AppendTo(b))
}

func shortHash(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}
