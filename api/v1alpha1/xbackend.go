package v1alpha1

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LabelXBackend is the label of the EndpointSlices with the endpoints of an XBackend of type EndpointSelector in their namespace, see
// XBackendLabel. In a cluster they inherit it from the Service that the controller creates for the XBackend; in files the user must set it.
const LabelXBackend = GroupName + "/xbackend"

// LabelXBackendUID is a further label in a cluster, with the UID of the XBackend: a later XBackend with the same name does not get these
// endpoints.
const LabelXBackendUID = GroupName + "/xbackend-uid"

// XBackendLabel is the value of LabelXBackend for an XBackend: its name, or where this is too long for a label 63 hexadecimal digits of the name's SHA-256.
func XBackendLabel(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:validation.LabelValueMaxLength]
}
