package v1alpha1

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelXBackend is on the EndpointSlices that have the endpoints of an XBackend of type EndpointSelector in their namespace, see XBackendLabel. In a cluster they
// have it of the Service that the controller makes for the XBackend; in files it is to be written.
const LabelXBackend = GroupName + "/xbackend"

// LabelXBackendUID is beside it in a cluster, with the UID of the XBackend: one of the same name that comes later has none of those endpoints.
const LabelXBackendUID = GroupName + "/xbackend-uid"

// XBackendLabel is the value of LabelXBackend for an XBackend: its name, or where this is too long for a label 63 hexadecimal digits of the name's SHA-256.
func XBackendLabel(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:validation.LabelValueMaxLength]
}
