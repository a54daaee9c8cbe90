package listener

import (
	"fmt"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Frontend contains the requirements of a Gateway for the certificates of its HTTPS clients (spec.tls.frontend).
type Frontend struct {
	Port       int32  // 0: all ports without their own Frontend
	Field      string // the path of Validation
	Validation *gwv1.FrontendTLSValidation
}

// FrontendsOf returns those of a Gateway, at most one for each port.
func FrontendsOf(gw *gwv1.Gateway) (all []Frontend) {
	if gw.Spec.TLS == nil || gw.Spec.TLS.Frontend == nil {
		return nil
	}
	spec := gw.Spec.TLS.Frontend
	all = append(all, Frontend{Field: "spec.tls.frontend.default.validation", Validation: spec.Default.Validation})
	for i, p := range spec.PerPort {
		all = append(all, Frontend{Port: p.Port, Field: fmt.Sprintf("spec.tls.frontend.perPort[%d].tls.validation", i), Validation: p.TLS.Validation})
	}
	return all
}

// References returns its caCertificateRefs.
func (f Frontend) References() []gwv1.ObjectReference {
	if f.Validation == nil {
		return nil
	}
	return f.Validation.CACertificateRefs
}

// InsecureFrontends returns the fields of a Gateway that allow clients with invalid certificates.
func InsecureFrontends(gw *gwv1.Gateway) (fields []string) {
	for _, f := range FrontendsOf(gw) {
		if f.Validation != nil && f.Validation.Mode == gwv1.AllowInsecureFallback {
			fields = append(fields, f.Field+".mode")
		}
	}
	return fields
}
