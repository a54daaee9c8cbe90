package listener

import (
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// CertificateNames is what the certificates of an HTTPS listener say to clients that would use its connections for
// hosts of other listeners, too (RFC 9113 section 9.1.1). A certificate without a host of the listener is left out: no
// client opens a connection with it. It is immutable.
type CertificateNames struct {
	Port int32
	// Hosts are those of the listener that its certificates have; a wildcard stands for one label. Sorted, distinct.
	Hosts []string
	// Names are all that these certificates have. Sorted, distinct, in lower case.
	Names []string
}

// maxCertificateNames bounds the names of a listener's certificates that are compared with those of each other listener. An
// overlap that only names beyond it have is not reported; requests are answered 421 all the same.
const maxCertificateNames = 1000

// NewCertificateNames reads the names of a listener's certificates, which are in lower case.
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

// hostsOf is what of a hostname a certificate's names have.
func hostsOf(hostname string, names []string) (hosts []string) {
	_, parent, _ := strings.Cut(hostname, ".")
	for _, n := range names {
		switch {
		case hostname == "" || n == hostname:
			hosts = append(hosts, n)
		case strings.HasPrefix(hostname, "*"): // any number of labels, in a certificate one
			if covers(hostname, strings.TrimPrefix(n, "*")) {
				hosts = append(hosts, n)
			}
		case n == "*."+parent:
			hosts = append(hosts, hostname)
		}
	}
	return hosts
}

// Equal compares two.
func (s *CertificateNames) Equal(o *CertificateNames) bool {
	return s.Port == o.Port && slices.Equal(s.Hosts, o.Hosts) && slices.Equal(s.Names, o.Names)
}

// Two listeners on a port overlap if a client could take a connection for a host of one to be good for a host of the other: if one Asks
// for what the other Offers. These are strings to be looked up, so that thousands of listeners need not be compared with each other.

// Offers are what the certificates have: the names, and of each that is no wildcard what is behind its first label, from the dot on.
func (s *CertificateNames) Offers() []string {
	offers := slices.Clone(s.Names)
	for _, n := range s.Names {
		if dot := strings.IndexByte(n, '.'); dot > 0 && n[0] != '*' {
			offers = append(offers, n[dot:])
		}
	}
	return distinct(offers)
}

// Asks are what certificates have that are good for one of the hosts: the host, the wildcard around it, or any name in one that is a
// wildcard.
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

// CertificatesOverlap says that certificates of l have hosts in common with those of other listeners.
func CertificatesOverlap(l *Listener, others string) *condition.Problem {
	return condition.NewProblem(gwv1.ListenerReasonOverlappingCertificates, l.Field+".tls.certificateRefs", l.repeated()+"use certificates without hosts in common",
		"certificates here and of %s on port %d share hosts of these listeners; "+l.astray(), others, l.Port)
}

// HostnamesOverlap says that the hostname of l has hosts in common with those of other listeners.
func HostnamesOverlap(l *Listener, others string) *condition.Problem {
	return condition.NewProblem(gwv1.ListenerReasonOverlappingHostnames, l.Field+".hostname", l.repeated()+"use another port",
		"hosts of this listener are also hosts of %s on port %d; "+l.astray(), others, l.Port)
}

// astray is what becomes of a request on a connection that was opened for another listener.
func (l *Listener) astray() string {
	if l.Protocol == gwv1.TLSProtocolType {
		return "what a client sends on a connection that it opened for another listener does not reach the backends of this one"
	}
	return "a request is answered 421 where its connection was opened for another listener"
}

// repeated is what clients do about that, to begin a remedy.
func (l *Listener) repeated() string {
	if l.Protocol == gwv1.TLSProtocolType {
		return "if clients use one connection for several hosts, "
	}
	return "browsers repeat it on another connection; if other clients do not, "
}

// everyHostname is a key of all hostnames, and of none.
const everyHostname = "."

// OfferedHostnameKeys and AskedHostnameKeys are for listeners what HostnameKeys and MatchingHostnameKeys are for a listener and a route: two hostnames that
// are not the same have hosts in common if the one asks for what the other offers.
func OfferedHostnameKeys(hostname string) []string {
	keys := append(suffixes(hostname), everyHostname)
	if hostname == "" || hostname[0] == '*' {
		keys = append(keys, hostname)
	}
	return keys
}

// AskedHostnameKeys are those of the hostnames that have hosts in common with one; see OfferedHostnameKeys.
func AskedHostnameKeys(hostname string) []string {
	if hostname == "" {
		return []string{everyHostname}
	}
	return MatchingHostnameKeys([]gwv1.Hostname{gwv1.Hostname(hostname)})
}

// suffixes are those of the wildcards that cover a hostname and are not the same, from the dot on.
func suffixes(hostname string) (all []string) {
	hostname = strings.TrimPrefix(hostname, "*.")
	for i := range len(hostname) {
		if hostname[i] == '.' {
			all = append(all, hostname[i:])
		}
	}
	return all
}
