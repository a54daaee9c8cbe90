package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// The labels and annotations of everything that is made for a Gateway.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelName      = "app.kubernetes.io/name"
	managedBy      = "moongate"
	proxyName      = "moongate-proxy"

	// labelMerged is set instead of the label with a Gateway's name on objects that serve all Gateways of a class.
	labelMerged = "moongate.dev/merged-gateways"

	// annotationGateway is the full name of the Gateway, which may be too long for a label; for merged Gateways it is
	// config.MergedName.
	annotationGateway = "moongate.dev/gateway"
	// annotationController is the controllerName under which the object was made.
	annotationController = "moongate.dev/controller"
	// annotationApplied is a hash of what was applied, so that a controller that restarts writes nothing.
	annotationApplied = "moongate.dev/applied"
	// annotationTemplate of a Deployment is a hash of spec.template as it was applied: only it shows which fields were removed
	// since.
	annotationTemplate = "moongate.dev/applied-template"
	// annotationAddress is what a Service requests: position in spec.addresses, type, value, and routability Cluster.
	annotationAddress = "moongate.dev/address"
)

// fieldManager owns the fields that this controller applies.
const fieldManager = "moongate"

// maxName is the maximum length of a Service's name and of a label's value.
const maxName = 63

// label1035 matches valid names of Services.
var label1035 = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// Name returns the name of the objects of a Gateway, and of the ServiceAccount of its proxies: `<gateway>-<class>`, for merged
// Gateways `<class>-gateways`, or, if that is not a valid name of a Service, the readable beginning of it and a hash.
func Name(gateway, class string) string { return serviceName(gateway, class, 0) }

// serviceName returns the name of the Service at a place, counted from 0; the names after the first have a suffix.
func serviceName(gateway, class string, place int) string {
	full, suffix := gateway+"-"+class, ""
	if class, merged := config.MergedClass(gateway); merged {
		full = class + "-gateways"
	}
	if place > 0 {
		suffix = "-" + strconv.Itoa(place+1)
	}
	if label1035.MatchString(full) && len(full)+len(suffix) <= maxName {
		return full + suffix
	}
	readable := strings.ReplaceAll(full, ".", "-")
	if readable[0] >= '0' && readable[0] <= '9' {
		readable = "g-" + readable
	}
	// The separator cannot occur in a name: gateway a-b of class c and gateway a of class b-c get different hashes.
	return shorten(readable, gateway+"/"+class, maxName-len(suffix)) + suffix
}

// hashedLabel is what labelValue makes of a long name, though a name may look like it.
var hashedLabel = regexp.MustCompile(`-[0-9a-f]{10}$`)

// generatedName reports whether the name of an object is one that this controller gives to objects of its kind, for the Gateway and the class that its metadata
// name. Users copy objects with all of their metadata but the name; such copies are theirs.
func generatedName(kind string, object Object) bool {
	if kind == kindPod { // named by its workload
		return true
	}
	gateway, class := object.GetAnnotations()[annotationGateway], object.GetLabels()[gwv1.GatewayClassNameLabelKey]
	if merged, is := config.MergedClass(gateway); is {
		class = merged
	}
	most := 1
	if kind == kindService {
		most = places
	}
	for place := range most {
		if serviceName(gateway, class, place) == object.GetName() {
			return true
		}
	}
	// If the label has a hash, the class and so the name are not known. An owner is not in most copies.
	return hashedLabel.MatchString(class) && metav1.GetControllerOf(object) != nil
}

// shorten is the beginning of readable and a hash of identity, together at most limit long.
func shorten(readable, identity string, limit int) string {
	sum := sha256.Sum256([]byte(identity))
	hash := "-" + hex.EncodeToString(sum[:5])
	readable = readable[:min(len(readable), limit-len(hash))]
	return strings.TrimRight(readable, "-.") + hash
}

// labelValue returns a name as the value of a label.
func labelValue(name string) string {
	if len(name) <= maxName {
		return name
	}
	return shorten(name, name, maxName)
}

// classOf is the label of an object with the class that it was made for; see labelValue.
func classOf(object Object) string { return object.GetLabels()[gwv1.GatewayClassNameLabelKey] }

// identityLabels tell the proxies of a Gateway, or of merged ones, from all other pods. A Deployment cannot change them.
func identityLabels(spec *translate.ProxySpec) map[string]string {
	labels := map[string]string{
		gwv1.GatewayClassNameLabelKey: labelValue(spec.Class),
		labelManagedBy:                managedBy,
		labelName:                     proxyName,
	}
	if isMerged(spec) {
		labels[labelMerged] = "true"
	} else {
		labels[gwv1.GatewayNameLabelKey] = labelValue(spec.Name)
	}
	return labels
}

// isMerged reports whether a spec is for all Gateways of a class.
func isMerged(spec *translate.ProxySpec) bool {
	_, merged := config.MergedClass(spec.Name)
	return merged
}

// servedBy describes, in text, what the proxies of the ProxySpec with that name serve.
func servedBy(namespace, name string) string {
	if class, merged := config.MergedClass(name); merged {
		return fmt.Sprintf("the Gateways of GatewayClass %s", class)
	}
	return fmt.Sprintf("Gateway %s/%s", namespace, name)
}

// The kinds of owners of the objects.
const (
	kindGateway      = "Gateway"
	kindGatewayClass = "GatewayClass"
)

// ownerOf returns the owner of the objects of a spec. The deletion of a GatewayClass does not wait for its objects: that would
// require a permission on all classes.
func ownerOf(spec *translate.ProxySpec) metav1.OwnerReference {
	owner := metav1.OwnerReference{APIVersion: gwv1.GroupVersion.String(), Kind: kindGateway, Name: spec.Name, UID: spec.UID, Controller: new(true), BlockOwnerDeletion: new(true)}
	if isMerged(spec) {
		owner.Kind, owner.Name, owner.BlockOwnerDeletion = kindGatewayClass, spec.Class, nil
	}
	return owner
}

// meta returns the metadata of an object of the Gateway. Labels and annotations of users come first, so that they cannot replace
// those that identify the objects.
func meta(spec *translate.ProxySpec, s Settings, kind v1alpha1.MetadataKind, name string) metav1.ObjectMeta {
	labels, annotations := labelsAndAnnotations(spec, s, kind)
	return metav1.ObjectMeta{
		Name: name, Namespace: spec.Namespace, Labels: labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{ownerOf(spec)},
	}
}

// labelsAndAnnotations returns those of an object of that kind, including those of the user that the class allows on the kind. For a
// pod nothing else is set here, because its Deployment owns it.
func labelsAndAnnotations(spec *translate.ProxySpec, s Settings, kind v1alpha1.MetadataKind) (labels, annotations map[string]string) {
	labels, annotations = parameters.Metadata(spec.Parameters.ClassOnly, kind, spec.Labels, spec.Annotations)
	maps.Copy(labels, identityLabels(spec))
	annotations[annotationGateway] = spec.Name
	annotations[annotationController] = s.ControllerName
	return labels, annotations
}
