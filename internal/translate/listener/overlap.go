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

	// index has the names, and of each that is no wildcard what is behind its first label, from the dot on.
	index map[string]struct{}
}

// maxCertificateNames bounds the names of a listener's certificates that are compared with those of each other listener. An
// overlap that only names beyond it have is not reported; requests are answered 421 all the same.
const maxCertificateNames = 1000

// NewCertificateNames reads the names of a listener's certificates, which are in lower case.
func NewCertificateNames(l *Listener, certificates ...[]string) *CertificateNames {
	s := &CertificateNames{Port: l.Port, index: map[string]struct{}{}}
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
	for _, n := range s.Names {
		s.index[n] = struct{}{}
		if dot := strings.IndexByte(n, '.'); dot > 0 && n[0] != '*' {
			s.index[n[dot:]] = struct{}{}
		}
	}
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

// has says whether the certificates have a host, or one of those of a wildcard.
func (s *CertificateNames) has(host string) bool {
	if _, is := s.index[host]; is {
		return true
	}
	dot := strings.IndexByte(host, '.')
	if dot <= 0 {
		return false
	}
	around := "*" + host[dot:] // of an exact name the wildcard
	if host[0] == '*' {
		around = host[dot:] // of a wildcard the exact names
	}
	_, is := s.index[around]
	return is
}

// Overlaps says whether a client could take a connection for a host of one listener to be good for
// a host of the other, too.
func (s *CertificateNames) Overlaps(o *CertificateNames) bool {
	return s.Port == o.Port && (slices.ContainsFunc(o.Hosts, s.has) || slices.ContainsFunc(s.Hosts, o.has))
}

// OverlapProblem says that certificates of l have hosts in common with those of others, by name.
func OverlapProblem(l *Listener, others []string) *condition.Problem {
	return condition.NewProblem(gwv1.ListenerReasonOverlappingCertificates, l.Field+".tls.certificateRefs", "",
		"certificates here and of %s on port %d share hosts of these listeners; a request is answered 421 where its connection was opened for another listener",
		condition.Quoted(others), l.Port)
}
