package listener

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// CertificateRef is an entry of certificateRefs, or a clientCertificateRef.
type CertificateRef struct {
	Field   string
	Group   string
	Kind    string
	Secret  types.NamespacedName
	Unknown bool // it is not a Secret of the core group
}

const secret gwv1.Kind = "Secret"

// NewCertificateRef reads a reference in a field of an object of a namespace.
func NewCertificateRef(field, namespace string, ref *gwv1.SecretObjectReference) CertificateRef {
	group, kind := string(ptr.Deref(ref.Group, corev1.GroupName)), string(ptr.Deref(ref.Kind, secret))
	return CertificateRef{
		Field: field, Group: group, Kind: kind,
		Secret:  types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gwv1.Namespace(namespace))), Name: string(ref.Name)},
		Unknown: group != corev1.GroupName || kind != string(secret),
	}
}

// ClientCertificate returns the client certificate that a Gateway presents to backends, nil if none.
func ClientCertificate(gw *gwv1.Gateway) *CertificateRef {
	tls := gw.Spec.TLS
	if tls == nil || tls.Backend == nil || tls.Backend.ClientCertificateRef == nil {
		return nil
	}
	ref := NewCertificateRef("spec.tls.backend.clientCertificateRef", gw.Namespace, tls.Backend.ClientCertificateRef)
	return &ref
}

// readMode reads whether TLS is terminated or passed through.
func (l *Listener) readMode(tls *gwv1.ListenerTLSConfig) {
	if tls == nil || l.Protocol != gwv1.HTTPSProtocolType && l.Protocol != gwv1.TLSProtocolType {
		return
	}
	switch mode := ptr.Deref(tls.Mode, gwv1.TLSModeTerminate); {
	case mode == gwv1.TLSModeTerminate, mode == "":
	case l.Protocol == gwv1.HTTPSProtocolType:
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".tls.mode", "use Terminate", "mode %q cannot be used with protocol HTTPS", mode)
	case mode == gwv1.TLSModePassthrough:
		l.Passthrough = true
	default:
		l.invalid(gwv1.ListenerReasonUnsupportedValue, ".tls.mode", "use Terminate or Passthrough", "mode %q is not known", mode)
	}
}

// readTLS reads the certificates and the TLS options for clients.
func (l *Listener) readTLS(gw *gwv1.Gateway, tls *gwv1.ListenerTLSConfig) {
	switch {
	case tls == nil:
		return
	case l.Passthrough:
		if len(tls.CertificateRefs) > 0 || len(tls.Options) > 0 {
			l.Notes = append(l.Notes, l.Field+".tls: certificateRefs and options are ignored, because the backends terminate TLS")
		}
		return
	case !l.Terminates():
		return
	}
	l.readOptions(tls.Options)
	for i := range tls.CertificateRefs {
		field := fmt.Sprintf("%s.tls.certificateRefs[%d]", l.Field, i)
		l.Certificates = append(l.Certificates, NewCertificateRef(field, gw.Namespace, &tls.CertificateRefs[i]))
	}
}
