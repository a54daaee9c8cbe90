package translate

import (
	"cmp"
	"slices"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// listenerOverlaps tells which listeners of TLS on a Gateway's port have hosts in common, its own and those of ListenerSets, so that a client may use
// a connection to one for requests to the other (RFC 9113 section 9.1.1).
type listenerOverlaps struct {
	certificates *certificateOverlaps
	hostnames    *hostnameOverlaps
}

func newListenerOverlaps(e *incremental.Engine, listeners *listeners, certificates *listenerCertificates) *listenerOverlaps {
	return &listenerOverlaps{newCertificateOverlaps(e, listeners, certificates), newHostnameOverlaps(e, listeners)}
}

// overlap is what the condition OverlappingTLSConfig of a listener says: certificates go before hostnames.
func (ov *listenerOverlaps) overlap(v *incremental.View, k listenerKey, l *listener.Listener) *condition.Problem {
	if others := ov.certificates.of(v, k); len(others) > 0 {
		return listener.CertificatesOverlap(l, beside(k, others))
	}
	if others := ov.hostnames.of(v, k, l); len(others) > 0 {
		return listener.HostnamesOverlap(l, beside(k, others))
	}
	return nil
}

// beside names those of the listeners that are of the owner of k. Of others it does not: they may be of a namespace that this owner must know nothing of.
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

// othersOf are the listeners of a Gateway that are not of the owner of k.
func othersOf(k listenerKey) string {
	if k.Set == "" {
		return "listeners of ListenerSets"
	}
	return "other listeners of the Gateway"
}

// firstListeners are the first of many: more than a message names, and the one that asks.
func firstListeners(users []listenerKey) []listenerKey {
	return users[:min(len(users), condition.MaxQuoted+2)]
}

// certificateOverlaps are the overlaps of what certificates of listeners have.
type certificateOverlaps struct {
	names  *incremental.Collection[listenerKey, *listener.CertificateNames] // of listeners with a certificate
	byHost *incremental.Index[certificateHost, listenerKey, *listener.CertificateNames]
	first  *incremental.Collection[certificateHost, []listenerKey] // of those in byHost
}

// newCertificateOverlaps tells of each listener that terminates TLS what its certificates have, apart from what else there is to them.
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

// certificateHost is what certificates of listeners on a Gateway's port offer, or ask for; see listener.CertificateNames.
type certificateHost struct {
	Gateway name
	Port    int32
	Offered bool
	Host    string
}

func (h certificateHost) Compare(o certificateHost) int {
	return cmp.Or(h.Gateway.Compare(o.Gateway), cmp.Compare(h.Port, o.Port), compareBool(h.Offered, o.Offered), cmp.Compare(h.Host, o.Host))
}

// of returns listeners that share hosts with one by their certificates.
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

// hostnameOverlaps are the overlaps of listeners' hostnames. Few listeners ask for what many offer, wildcards and a listener for all hosts; so each asks
// the index itself.
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

// hasHosts reports whether hosts of the listener may be those of another one, too.
func hasHosts(l *listener.Listener) bool { return (l.Terminates() || l.Passthrough) && l.Valid() }

// of returns listeners that share hosts with one by their hostnames.
func (ho *hostnameOverlaps) of(v *incremental.View, k listenerKey, l *listener.Listener) (others []listenerKey) {
	if !hasHosts(l) {
		return nil
	}
	for _, asked := range listener.AskedHostnameKeys(l.Hostname) {
		others = appendOthers(others, k, firstListeners(incremental.Lookup(v, ho.byKey, portHostnameKey{k.Gateway, l.Port, asked})))
	}
	return others
}

// appendOthers appends all users but one.
func appendOthers(others []listenerKey, one listenerKey, users []listenerKey) []listenerKey {
	for _, u := range users {
		if u != one {
			others = append(others, u)
		}
	}
	return others
}
