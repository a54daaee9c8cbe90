package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moongate-dev/moongate/internal/source/schema"
)

// The core kinds have no CRD. Their defaults and rules are those of an API server, for the fields that a gateway reads. Two rules
// are left out: here endpoints may have loopback addresses, and translation validates the certificates of a ClusterTrustBundle, like
// those of a ConfigMap.

func completeNamespace(obj metav1.Object) []schema.Violation {
	ns := obj.(*corev1.Namespace)
	labels := maps.Clone(ns.Labels)
	if labels == nil {
		labels = make(map[string]string, 1)
	}
	labels[corev1.LabelMetadataName] = ns.Name
	ns.Labels = labels
	return nil
}

func completeConfigMap(obj metav1.Object) []schema.Violation {
	cm := obj.(*corev1.ConfigMap)
	found := checkKeys("data", sortedKeys(cm.Data))
	for _, k := range sortedKeys(cm.BinaryData) {
		if _, ok := cm.Data[k]; ok {
			found = append(found, schema.Violation{Field: "binaryData[" + k + "]", Message: "is in data too", Remedy: "keep one of the two"})
		}
	}
	return append(found, checkKeys("binaryData", sortedKeys(cm.BinaryData))...)
}

func completeClusterTrustBundle(obj metav1.Object) []schema.Violation {
	b := obj.(*certificatesv1.ClusterTrustBundle)
	if b.Spec.TrustBundle == "" {
		return []schema.Violation{schema.Missing("spec.trustBundle")}
	}
	prefix := "" // of the name
	if b.Spec.SignerName != "" {
		prefix = strings.ReplaceAll(b.Spec.SignerName, "/", ":") + ":"
	}
	switch i := strings.LastIndexByte(b.Name, ':'); {
	case b.Name[:i+1] == prefix:
		return nil
	case prefix == "":
		return []schema.Violation{{Field: "metadata.name", Message: "has a ':' and there is no spec.signerName", Remedy: "use no ':', or name the signer"}}
	}
	return []schema.Violation{{Field: "metadata.name", Message: "is not that of a bundle of spec.signerName", Remedy: "begin it with " + strconv.Quote(schema.Show(prefix)) + ", and use no other ':'"}}
}

func completeSecret(obj metav1.Object) []schema.Violation {
	s := obj.(*corev1.Secret)
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
	found := checkKeys("data", sortedKeys(s.Data))
	if s.Type != corev1.SecretTypeTLS {
		return found
	}
	for _, k := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if _, ok := s.Data[k]; !ok {
			found = append(found, schema.Violation{Field: "data[" + k + "]", Message: "required field is missing", Remedy: fmt.Sprintf("add %q: a Secret of type %s needs it", k, s.Type)})
		}
	}
	return found
}

func checkKeys(path string, keys []string) []schema.Violation {
	var found []schema.Violation
	for _, k := range keys {
		if len(validation.IsConfigMapKey(k)) > 0 {
			found = append(found, schema.Violation{Field: path + "[" + k + "]", Message: "is not a valid key", Remedy: "use letters, digits, '-', '_' and '.' only"})
		}
	}
	return found
}

func completeService(obj metav1.Object) []schema.Violation {
	spec := &obj.(*corev1.Service).Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	var found []schema.Violation
	types := []string{string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeExternalName), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort)}
	if !slices.Contains(types, string(spec.Type)) {
		found = append(found, schema.Unsupported("spec.type", string(spec.Type), types))
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if external && spec.ExternalName == "" {
		found = append(found, schema.Missing("spec.externalName"))
	}
	if len(spec.Ports) == 0 && !external && spec.ClusterIP != corev1.ClusterIPNone {
		found = append(found, schema.Missing("spec.ports"))
	}
	names := map[string]int{}
	numbers := map[string]int{}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		path := "spec.ports[" + strconv.Itoa(i) + "]"
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		} else {
			found = append(found, checkTargetPort(path+".targetPort", p.TargetPort)...)
		}
		found = append(found, checkPort(path+".port", p.Port)...)
		found = append(found, checkProtocol(path+".protocol", p.Protocol)...)
		if p.Name == "" && len(spec.Ports) > 1 {
			found = append(found, schema.Violation{Field: path + ".name", Message: "required field is missing", Remedy: `add "name": with several ports each needs one`})
		}
		if p.Name != "" {
			found = append(found, checkPortName(path+".name", p.Name, names, i)...)
		}
		number := fmt.Sprint(p.Port, "/", p.Protocol)
		found = append(found, checkRepeated(path, number, numbers, i)...)
	}
	return found
}

func checkPort(path string, port int32) []schema.Violation {
	if port >= 1 && port <= 65535 {
		return nil
	}
	return []schema.Violation{{Field: path, Message: fmt.Sprintf("%d is not a port", port), Remedy: "use a number between 1 and 65535"}}
}

func checkProtocol(path string, p corev1.Protocol) []schema.Violation {
	all := []string{string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP)}
	if slices.Contains(all, string(p)) {
		return nil
	}
	return []schema.Violation{schema.Unsupported(path, string(p), all)}
}

func checkTargetPort(path string, p intstr.IntOrString) []schema.Violation {
	if p.Type == intstr.Int {
		return checkPort(path, p.IntVal)
	}
	if len(validation.IsValidPortName(p.StrVal)) == 0 {
		return nil
	}
	return []schema.Violation{{Field: path, Message: strconv.Quote(schema.Show(p.StrVal)) + " is neither a port nor the name of one", Remedy: "use a number, or a name of at most 15 lower case letters, digits and '-'"}}
}

func checkPortName(path, name string, seen map[string]int, i int) []schema.Violation {
	found := checkRepeated(path, name, seen, i)
	if len(validation.IsDNS1123Label(name)) > 0 {
		found = append(found, schema.Violation{Field: path, Message: strconv.Quote(schema.Show(name)) + " is not a valid name", Remedy: "use at most 63 lower case letters, digits and '-'"})
	}
	return found
}

func checkRepeated(path, value string, seen map[string]int, i int) []schema.Violation {
	first, ok := seen[value]
	if !ok {
		seen[value] = i
		return nil
	}
	return []schema.Violation{{Field: path, Message: fmt.Sprintf("%q is used by entry %d already", schema.Show(value), first), Remedy: "make it differ, or remove one"}}
}

func completeEndpointSlice(obj metav1.Object) []schema.Violation {
	s := obj.(*discoveryv1.EndpointSlice)
	var found []schema.Violation
	types := []string{string(discoveryv1.AddressTypeIPv4), string(discoveryv1.AddressTypeIPv6), string(discoveryv1.AddressTypeFQDN)}
	switch {
	case s.AddressType == "":
		found = append(found, schema.Violation{Field: "addressType", Message: "required field is missing", Remedy: `add "addressType" with one of ` + strings.Join(types, ", ")})
	case !slices.Contains(types, string(s.AddressType)):
		found = append(found, schema.Unsupported("addressType", string(s.AddressType), types))
	}
	names := map[string]int{}
	for i := range s.Ports {
		p := &s.Ports[i]
		path := "ports[" + strconv.Itoa(i) + "]"
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
		if p.Port != nil {
			found = append(found, checkPort(path+".port", *p.Port)...)
		}
		found = append(found, checkProtocol(path+".protocol", *p.Protocol)...)
		if *p.Name == "" {
			found = append(found, checkRepeated(path+".name", "", names, i)...)
		} else {
			found = append(found, checkPortName(path+".name", *p.Name, names, i)...)
		}
	}
	for i := range s.Endpoints {
		found = append(found, checkEndpoint("endpoints["+strconv.Itoa(i)+"].addresses", s.AddressType, s.Endpoints[i].Addresses)...)
	}
	return found
}

func checkEndpoint(path string, t discoveryv1.AddressType, addresses []string) []schema.Violation {
	if len(addresses) == 0 {
		return []schema.Violation{schema.Missing(path)}
	}
	var found []schema.Violation
	for i, a := range addresses {
		var ok bool
		ip, err := netip.ParseAddr(a)
		switch t {
		case discoveryv1.AddressTypeIPv4:
			ok = err == nil && ip.Is4()
		case discoveryv1.AddressTypeIPv6:
			ok = err == nil && ip.Is6() && ip.Zone() == ""
		case discoveryv1.AddressTypeFQDN:
			ok = len(validation.IsDNS1123Subdomain(strings.TrimSuffix(a, "."))) == 0
		default:
			ok = true // reported at addressType
		}
		if !ok {
			found = append(found, schema.Violation{Field: fmt.Sprintf("%s[%d]", path, i), Message: fmt.Sprintf("%q is not an address of type %s", schema.Show(a), t), Remedy: "write such an address, or change addressType"})
		}
	}
	return found
}
