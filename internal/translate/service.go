package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// service is what routes and backends need to know about a Service.
type service struct {
	External bool // type ExternalName
	ClientIP bool // sessionAffinity is ClientIP
	// ClusterIP is the Service's own address; "" or "None" if it has none.
	ClusterIP string
	// Family is the first IP family of a dual-stack Service, "" for others.
	Family corev1.IPFamily
	Ports  []servicePort
}

type servicePort struct {
	Name        string
	Port        int32
	Protocol    corev1.Protocol
	AppProtocol string // lower case, because names of services are compared without case (RFC 6335 section 5.1)
}

// port returns the port with that number; if several have it, the one of the protocol.
func (s *service) port(number int32, protocol corev1.Protocol) (found servicePort, exists bool) {
	for _, p := range s.Ports {
		if p.Port == number && (!exists || p.Protocol == protocol) {
			found, exists = p, true
		}
	}
	return found, exists
}

// needsTLS reports whether the port's appProtocol requires TLS, and so a BackendTLSPolicy.
func (p *servicePort) needsTLS() bool { return slices.Contains(overTLS, p.AppProtocol) }

// overTLS are the values of appProtocol that require TLS, from KEP-3726 and from IANA's registry of service names. Only a TLSRoute
// can refer to ports with most of them.
var overTLS = []string{"kubernetes.io/wss", "https",
	"amqps", "domain-s", "ftps", "imaps", "ircs-u", "ldaps", "nntps", "pop3s", "secure-mqtt", "sips", "submissions", "syslog-tls", "telnets"}

// services contains what routes and backends need to know about Services.
type services struct {
	all *incremental.Collection[name, *service]
}

func newServices(e *incremental.Engine, serviceObjects *incremental.Collection[name, *corev1.Service]) *services {
	ss := &services{}
	ss.all = incremental.Map(e, "Service", serviceObjects,
		func(_ *incremental.View, _ name, svc *corev1.Service) (*service, bool) {
			s := &service{External: svc.Spec.Type == corev1.ServiceTypeExternalName, ClientIP: svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP, ClusterIP: svc.Spec.ClusterIP}
			if len(svc.Spec.IPFamilies) > 1 {
				s.Family = svc.Spec.IPFamilies[0]
			}
			for _, p := range svc.Spec.Ports {
				protocol := p.Protocol
				if protocol == "" {
					protocol = corev1.ProtocolTCP
				}
				s.Ports = append(s.Ports, servicePort{p.Name, p.Port, protocol, strings.ToLower(ptr.Deref(p.AppProtocol, ""))})
			}
			return s, true
		}, sameDeeply[*service])
	return ss
}

// lacksProtocol reports whether the port has no appProtocol, so that the object that refers to it decides.
func (p *servicePort) lacksProtocol() bool { return p.AppProtocol == "" }
