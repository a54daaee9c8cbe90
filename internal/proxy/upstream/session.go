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

// CountSession counts a request with session persistence.
func (b *Backend) CountSession(s observe.Session) { b.totals().sessions[s].Add(1) }

// Sessions returns the session persistence of the backend, for rules that do not configure it; nil if there is none.
func (b *Backend) Sessions() *session.Settings {
	if b.base != nil {
		b = b.base
	}
	return b.sessions.Load()
}

// SessionID returns the ID of the backend in session tokens. It is the same for all backends that are the same port of
// a Service.
func (b *Backend) SessionID() uint64 { return b.sessionID }

// SessionID returns the ID of the endpoint in session tokens: of the pod or other object behind the address if that is
// known, otherwise of the address.
func (e *Endpoint) SessionID() uint64 { return e.sessionID.Load() }

// SessionEndpointAs returns the endpoint with an ID for a request of a Gateway, see PickAs. It may be terminating. It
// returns nil if the endpoint no longer exists or is barred, or if there are others and its last connect failed a
// moment ago or a policy has found it unhealthy.
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

// Counterpart returns the endpoint of b that has the address and the SessionID of e, which may be of another Backend or
// removed. It may be terminating. It returns nil if there is none.
func (b *Backend) Counterpart(e *Endpoint) *Endpoint {
	list, id := b.list.Load().bySession, e.SessionID()
	at, _ := slices.BinarySearchFunc(list, id, func(e *Endpoint, id uint64) int { return cmp.Compare(e.SessionID(), id) })
	for ; at < len(list) && list[at].SessionID() == id; at++ {
		if list[at].address == e.address {
			return list[at]
		}
	}
	return nil
}

// newEndpointList returns a complete list.
func newEndpointList(all, usable []*Endpoint) *endpointList {
	l := &endpointList{all: all, usable: usable, bySession: all}
	bySessionID := func(a, b *Endpoint) int { return cmp.Compare(a.SessionID(), b.SessionID()) }
	if !slices.IsSortedFunc(all, bySessionID) {
		l.bySession = slices.SortedFunc(slices.Values(all), bySessionID)
	}
	return l
}

func backendSessionID(key string) uint64 { return shortHash([]byte(config.ServicePort(key))) }

// endpointSessionID returns the hash of config.Endpoint.identity and the port, or of the address if there is no
// identity.
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
