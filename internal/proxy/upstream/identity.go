package upstream

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"maps"
	"slices"
	"strings"
)

// Identity is the client certificate of a Gateway for backends that it connects to over TLS. Gateways share the
// connections to a backend, but those over TLS only if they have no Identity: each Identity has its own connections and
// TLS sessions. External hostnames do not get the certificate.
type Identity struct {
	key identityKey
	// The fields below are guarded by Set.mu.
	shown *tls.Certificate
	gone  bool // what is made for it from now on ends soon
}

type identityKey struct{ gateway, certificate string }

func (k identityKey) compare(o identityKey) int {
	return cmp.Or(strings.Compare(k.gateway, o.gateway), strings.Compare(k.certificate, o.certificate))
}

// Unusable is the Identity of a Gateway whose certificate cannot be used: it connects to no backend over TLS.
var Unusable = &Identity{}

// Identity returns the Identity of a Gateway and the key of its certificate, which is used for backends from now on:
// connections with another certificate are not used for further requests. It is the same until KeepIdentities is called
// without it.
func (s *Set) Identity(gateway, certificate string, shown *tls.Certificate) *Identity {
	var gone []*Endpoint
	defer func() {
		for _, e := range gone {
			e.retire()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := identityKey{gateway, certificate}
	i := s.identities[key]
	if i == nil {
		i = &Identity{key: key, shown: shown}
		s.identities[key] = i
		return i
	}
	if sameCertificate(i.shown, shown) {
		return i
	}
	i.shown = shown
	bases := slices.Collect(maps.Values(s.backends))
	for _, l := range s.removed { // requests that had found these backends before use the same certificate
		bases = append(bases, l.Backend)
	}
	for _, b := range bases {
		if v := b.variant(i); v != nil {
			gone = append(gone, v.setTransport(b.transport.Load().showing(shown))...)
		}
	}
	return i
}

// sameCertificate compares the chains. The private key belongs to the first certificate.
func sameCertificate(a, b *tls.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// KeepIdentities removes all Identities that are not used. Requests that have found one before can still use it for
// removedLifetime.
func (s *Set) KeepIdentities(used map[*Identity]bool) {
	var removed []*Endpoint
	s.mu.Lock()
	for key, i := range s.identities {
		if used[i] {
			continue
		}
		delete(s.identities, key)
		i.gone = true
		for _, b := range s.backends {
			if v := b.variant(i); v != nil {
				s.removed = append(s.removed, removedBackend{v, s.clock.Load()})
				removed = append(removed, v.list.Load().all...)
			}
		}
	}
	s.mu.Unlock()
	for _, e := range removed {
		e.closeIdle()
	}
}

// As returns the backend as the requests of a Gateway reach it. It returns b itself if b does not use TLS, is an
// external hostname or has a client certificate of its own, or if i is nil. It returns nil if the backend must not be
// reached. The result has the key and the totals of b.
func (b *Backend) As(i *Identity) *Backend {
	if t := b.transport.Load(); i == nil || b.identity == i || t.tls == nil || t.own {
		return b
	}
	if i == Unusable {
		return nil
	}
	if v := b.variant(i); v != nil {
		return v
	}
	return b.addVariant(i)
}

// PickAs is like Pick, for a request of a Gateway, which may have got b from As before b used TLS: if b uses TLS by
// now, it returns an endpoint for the Gateway's certificate. It also returns nil if there must be none; see AwaitHost.
func (b *Backend) PickAs(i *Identity, seed *uint64, tried *Tried) *Endpoint {
	return b.PickForAs(i, seed, tried, nil)
}

// PickForAs is to PickFor what PickAs is to Pick.
func (b *Backend) PickForAs(i *Identity, seed *uint64, tried *Tried, info *PickInfo) *Endpoint {
	for {
		as := b.As(i)
		if as == nil {
			return nil
		}
		e := as.PickFor(seed, tried, info)
		if e == nil || i == nil || e.transport.tls == nil || e.transport.own || e.backend.identity == i {
			return e
		}
	}
}

// variant returns the variant for an Identity, nil if there is none yet.
func (b *Backend) variant(i *Identity) *Backend {
	for _, v := range b.variantList() {
		if v.identity == i {
			return v
		}
	}
	return nil
}

// variantList returns the variants. The slice must not be changed.
func (b *Backend) variantList() []*Backend {
	if all := b.variants.Load(); all != nil {
		return *all
	}
	return nil
}

func (b *Backend) addVariant(i *Identity) *Backend {
	s := b.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := b.variant(i); v != nil {
		return v
	}
	v := &Backend{key: b.key, set: s, base: b, identity: i, sessionID: b.sessionID}
	v.list.Store(&endpointList{})
	v.transport.Store(b.transport.Load().showing(i.shown))
	v.balancing.Store(b.balancing.Load())
	var endpoints []parsedEndpoint
	for _, e := range b.list.Load().all {
		endpoints = append(endpoints, parsedEndpoint{address: e.address, terminating: e.terminating.Load(), sessionID: e.SessionID(), zone: e.Zone(), born: e.born})
	}
	v.replace(endpoints)
	all := append(slices.Clone(b.variantList()), v)
	b.variants.Store(&all)
	b.checkAnew()
	if i.gone {
		s.removed = append(s.removed, removedBackend{v, s.clock.Load()})
	}
	if i.gone || s.backends[b.key] != b { // only for requests that have found them before
		for _, e := range v.list.Load().all {
			e.closeIdle()
		}
	}
	return v
}

// dropVariant removes v, whose endpoints are gone. Set.mu must be held.
func (b *Backend) dropVariant(v *Backend) {
	all := slices.DeleteFunc(slices.Clone(b.variantList()), func(other *Backend) bool { return other == v })
	b.variants.Store(&all)
}

// showing returns t with a client certificate, whatever authorities the endpoint accepts by its own account.
func (t *transport) showing(c *tls.Certificate) *transport {
	if t.tls == nil || t.own {
		return t
	}
	own := *t
	own.client = c
	own.tls = t.tls.Clone()
	own.tls.ClientSessionCache = tls.NewLRUClientSessionCache(resumable) // a session belongs to the certificate with which it began
	own.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c, nil }
	own.tunnel = own.tls.Clone()
	own.tunnel.NextProtos = nil
	return &own
}
