package translate

import (
	"cmp"
	"slices"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// listenerOverlaps finds the TLS listeners on a port of a Gateway, including those of ListenerSets, that have hosts in common, so
// that a client may reuse a connection to one for requests to the other (RFC 9113 section 9.1.1).
type listenerOverlaps struct {
	certificates *certificateOverlaps
	hostnames    *hostnameOverlaps
}

func newListenerOverlaps(e *incremental.Engine, listeners *listeners, certificates *listenerCertificates) *listenerOverlaps {
	return &listenerOverlaps{newCertificateOverlaps(e, listeners, certificates), newHostnameOverlaps(e, listeners)}
}

// overlap returns the problem for the condition OverlappingTLSConfig of a listener, or nil: overlaps of certificates come before
// those of hostnames.
func (ov *listenerOverlaps) overlap(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if others := ov.certificates.of(v, k); len(others) > 0 {
		return listener.CertificatesOverlap(l, beside(k, others))
	}
	if others := ov.hostnames.of(v, k, l); len(others) > 0 {
		return listener.HostnamesOverlap(l, beside(k, others))
	}
	return nil
}

// beside names the other listeners that belong to the owner of k. It does not name the rest, because they may be in a namespace that
// this owner must not learn about.
func beside(k listenerKey, others []listenerKey) string {
	var names []string
	foreign := false
	for _, other := range others {
		if other.Set == k.Set {
			names = append(names, other.Name)
		} else {
			foreign = true
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case !foreign:
		return condition.Some(names)
	case len(names) == 0:
		return othersOf(k)
	}
	return condition.Some(names) + " and " + othersOf(k)
}

// othersOf describes the listeners of a Gateway that do not belong to the owner of k.
func othersOf(k listenerKey) string {
	if k.Set == "" {
		return "listeners of ListenerSets"
	}
	return "other listeners of the Gateway"
}

// firstListeners returns the first listeners of a long list: more than a message names, plus the one that the message is for.
func firstListeners(users []listenerKey) []listenerKey {
	return users[:min(len(users), condition.MaxQuoted+2)]
}

// certificateOverlaps finds overlaps of the names in certificates of listeners.
type certificateOverlaps struct {
	names  *incremental.Collection[listenerKey, *listener.CertificateNames] // of listeners with a certificate
	byHost *incremental.Index[certificateHost, listenerKey, *listener.CertificateNames]
	first  *incremental.Collection[certificateHost, []listenerKey] // of the keys of byHost
}

// newCertificateOverlaps stores the names of the certificates of each listener that terminates TLS separately, so that other changes
// of a listener do not affect overlaps.
func newCertificateOverlaps(e *incremental.Engine, listeners *listeners, certificates *listenerCertificates) *certificateOverlaps {
	co := &certificateOverlaps{}
	co.names = incremental.Map(e, "certificate names", listeners.all,
		func(v *incremental.View, k listenerKey, l *listener.Listener) (*listener.CertificateNames, bool) {
			if !l.Terminates() || !l.Valid() {
				return nil, false
			}
			var names [][]string
			for _, ref := range l.Certificates {
				if _, p := certificates.resolveCertificate(v, k, ref); p == nil {
					pair, _ := incremental.Fetch(v, certificates.secrets.keyPairs, name(ref.Secret))
					names = append(names, pair.Names)
				}
			}
			return listener.NewCertificateNames(l, names...), len(names) > 0
		}, (*listener.CertificateNames).Equal)
	co.byHost = incremental.NewIndex(co.names, "listeners by names of certificates",
		func(k listenerKey, c *listener.CertificateNames) (hosts []certificateHost) {
			for _, offer := range c.Offers() {
				hosts = append(hosts, certificateHost{k.Gateway, c.Port, true, offer})
			}
			for _, ask := range c.Asks() {
				hosts = append(hosts, certificateHost{k.Gateway, c.Port, false, ask})
			}
			return hosts
		})
	co.first = incremental.Map(e, "first listeners by names of certificates", incremental.Keys(co.byHost, "names of certificates"),
		func(v *incremental.View, h certificateHost, _ struct{}) ([]listenerKey, bool) {
			return slices.Clone(firstListeners(incremental.Lookup(v, co.byHost, h))), true
		}, slices.Equal[[]listenerKey])
	return co
}

// certificateHost is a host for which certificates on a Gateway's port are valid, or for which overlaps are looked up; see
// listener.CertificateNames.
type certificateHost struct {
	Gateway name
	Port    int32
	Offered bool
	Host    string
}

func (h certificateHost) Compare(o certificateHost) int {
	return cmp.Or(h.Gateway.Compare(o.Gateway), cmp.Compare(h.Port, o.Port), compareBool(h.Offered, o.Offered), cmp.Compare(h.Host, o.Host))
}

// of returns listeners that share hosts with a listener by their certificates.
func (co *certificateOverlaps) of(v *incremental.View, k listenerKey) (others []listenerKey) {
	own, is := incremental.Fetch(v, co.names, k)
	if !is {
		return nil
	}
	note := func(offered bool, host string) {
		users, _ := incremental.Fetch(v, co.first, certificateHost{k.Gateway, own.Port, offered, host})
		others = appendOthers(others, k, users)
	}
	for _, ask := range own.Asks() {
		note(true, ask)
	}
	for _, offer := range own.Offers() {
		note(false, offer)
	}
	return others
}

// hostnameOverlaps finds overlaps of listeners' hostnames. Wildcards, and listeners for all hosts, are looked up by few listeners,
// so each listener reads the index directly.
type hostnameOverlaps struct {
	byKey *incremental.Index[portHostnameKey, listenerKey, *listener.Listener]
}

// portHostnameKey is one of listener.OfferedHostnameKeys on a Gateway's port.
type portHostnameKey struct {
	Gateway name
	Port    int32
	Key     string
}

func (k portHostnameKey) Compare(o portHostnameKey) int {
	return cmp.Or(k.Gateway.Compare(o.Gateway), cmp.Compare(k.Port, o.Port), cmp.Compare(k.Key, o.Key))
}

func newHostnameOverlaps(e *incremental.Engine, listeners *listeners) *hostnameOverlaps {
	ho := &hostnameOverlaps{}
	ho.byKey = incremental.NewIndex(listeners.all, "listeners of TLS by keys of hostnames",
		func(k listenerKey, l *listener.Listener) (keys []portHostnameKey) {
			if !hasHosts(l) {
				return nil
			}
			for _, offered := range listener.OfferedHostnameKeys(l.Hostname) {
				keys = append(keys, portHostnameKey{k.Gateway, l.Port, offered})
			}
			return keys
		})
	return ho
}

// hasHosts reports whether the listener may share hosts with another.
func hasHosts(l *listener.Listener) bool { return (l.Terminates() || l.Passthrough) && l.Valid() }

// of returns listeners that share hosts with a listener by their hostnames.
func (ho *hostnameOverlaps) of(v *incremental.View, k listenerKey, l *listener.Listener) (others []listenerKey) {
	if !hasHosts(l) {
		return nil
	}
	for _, asked := range listener.AskedHostnameKeys(l.Hostname) {
		others = appendOthers(others, k, firstListeners(incremental.Lookup(v, ho.byKey, portHostnameKey{k.Gateway, l.Port, asked})))
	}
	return others
}

// appendOthers appends all users except one.
func appendOthers(others []listenerKey, one listenerKey, users []listenerKey) []listenerKey {
	for _, u := range users {
		if u != one {
			others = append(others, u)
		}
	}
	return others
}
