package listener

import (
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// CertificateNames are the names by which clients may reuse connections to an HTTPS listener for hosts of other listeners (RFC 9113
// section 9.1.1). A certificate without a host of the listener is ignored: no client opens a connection with it. It is immutable.
type CertificateNames struct {
	Port int32
	// Hosts are the hosts of the listener for which its certificates are valid; a wildcard stands for one label. Sorted, distinct.
	Hosts []string
	// Names are all names in these certificates. Sorted, distinct, in lower case.
	Names []string
}

// maxCertificateNames limits the names of a listener's certificates that are compared with those of other listeners. An overlap of
// names beyond it is not reported; requests are answered with 421 nevertheless.
const maxCertificateNames = 1000

// NewCertificateNames returns the CertificateNames of a listener; the names of its certificates must be in lower case.
func NewCertificateNames(l *Listener, certificates ...[]string) *CertificateNames {
	s := &CertificateNames{Port: l.Port}
	left := maxCertificateNames
	for _, names := range certificates {
		names = names[:min(left, len(names))]
		left -= len(names)
		if hosts := hostsOf(l.Hostname, names); len(hosts) > 0 {
			s.Hosts, s.Names = append(s.Hosts, hosts...), append(s.Names, names...)
		}
	}
	slices.Sort(s.Hosts)
	slices.Sort(s.Names)
	s.Hosts, s.Names = slices.Compact(s.Hosts), slices.Compact(s.Names)
	return s
}

// hostsOf returns the hosts of a hostname that a certificate's names cover.
func hostsOf(hostname string, names []string) (hosts []string) {
	_, parent, _ := strings.Cut(hostname, ".")
	for _, n := range names {
		switch {
		case hostname == "" || n == hostname:
			hosts = append(hosts, n)
		case strings.HasPrefix(hostname, "*"): // any number of labels; in a certificate exactly one
			if covers(hostname, strings.TrimPrefix(n, "*")) {
				hosts = append(hosts, n)
			}
		case n == "*."+parent:
			hosts = append(hosts, hostname)
		}
	}
	return hosts
}

// Equal reports whether two are equal.
func (s *CertificateNames) Equal(o *CertificateNames) bool {
	return s.Port == o.Port && slices.Equal(s.Hosts, o.Hosts) && slices.Equal(s.Names, o.Names)
}

// Two listeners on a port overlap if a client could use a connection for a host of one for a host of the other: if one Asks for what
// the other Offers. These are strings for an index, so that thousands of listeners need not be compared with each other.

// Offers returns the names in the certificates, and for each that is not a wildcard also the part after its first label, from the
// dot on.
func (s *CertificateNames) Offers() []string {
	offers := slices.Clone(s.Names)
	for _, n := range s.Names {
		if dot := strings.IndexByte(n, '.'); dot > 0 && n[0] != '*' {
			offers = append(offers, n[dot:])
		}
	}
	return distinct(offers)
}

// Asks returns the names that are valid for one of the hosts: the host, the wildcard that covers it, and for a wildcard any name in
// it.
func (s *CertificateNames) Asks() []string {
	asks := slices.Clone(s.Hosts)
	for _, host := range s.Hosts {
		switch dot := strings.IndexByte(host, '.'); {
		case dot <= 0:
		case host[0] == '*':
			asks = append(asks, host[dot:])
		default:
			asks = append(asks, "*"+host[dot:])
		}
	}
	return distinct(asks)
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// CertificatesOverlap reports that certificates of l share hosts with those of other listeners.
func CertificatesOverlap(l *Listener, others string) *condition.Problem {
	return condition.NewProblem(gwv1.ListenerReasonOverlappingCertificates, l.Field+".tls.certificateRefs", l.repeated()+"use certificates without hosts in common",
		"certificates here and of %s on port %d share hosts of these listeners; "+l.astray(), others, l.Port)
}

// HostnamesOverlap reports that the hostname of l shares hosts with those of other listeners.
func HostnamesOverlap(l *Listener, others string) *condition.Problem {
	return condition.NewProblem(gwv1.ListenerReasonOverlappingHostnames, l.Field+".hostname", l.repeated()+"use another port",
		"hosts of this listener are also hosts of %s on port %d; "+l.astray(), others, l.Port)
}

// astray describes what happens to a request on a connection that was opened for another listener.
func (l *Listener) astray() string {
	if l.Protocol == gwv1.TLSProtocolType {
		return "what a client sends on a connection that it opened for another listener does not reach the backends of this one"
	}
	return "a request is answered 421 where its connection was opened for another listener"
}

// repeated describes what clients do then; it begins a remedy.
func (l *Listener) repeated() string {
	if l.Protocol == gwv1.TLSProtocolType {
		return "if clients use one connection for several hosts, "
	}
	return "browsers repeat it on another connection; if other clients do not, "
}

// everyHostname is a key of all hostnames, and is not itself a hostname.
const everyHostname = "."

// OfferedHostnameKeys and AskedHostnameKeys correspond to HostnameKeys and MatchingHostnameKeys, for two listeners: two different
// hostnames have hosts in common if one asks for what the other offers.
func OfferedHostnameKeys(hostname string) []string {
	keys := append(suffixes(hostname), everyHostname)
	if hostname == "" || hostname[0] == '*' {
		keys = append(keys, hostname)
	}
	return keys
}

// AskedHostnameKeys returns the keys to look up for a hostname; see OfferedHostnameKeys.
func AskedHostnameKeys(hostname string) []string {
	if hostname == "" {
		return []string{everyHostname}
	}
	return MatchingHostnameKeys([]gwv1.Hostname{gwv1.Hostname(hostname)})
}

// suffixes returns the suffixes, from the dot on, of the wildcards that cover a hostname, except itself.
func suffixes(hostname string) (all []string) {
	hostname = strings.TrimPrefix(hostname, "*.")
	for i := range len(hostname) {
		if hostname[i] == '.' {
			all = append(all, hostname[i:])
		}
	}
	return all
}
