package kind

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// Undecoded stands for an object that exists and was never decoded completely, because it does not fit its Go type or, in a file, is
// invalid. What the object denies, and its targets, are read nevertheless: a mistake elsewhere in it must not remove a protection.
// It ends with the object itself, or with its deletion.
type Undecoded struct {
	metav1.ObjectMeta // namespace and name; for a policy also its creationTimestamp, which decides between policies with the same target
	Kind              string
	Error             string // why it cannot be read
	// DeniedEndpoints are, for GatewayParameters, those of spec.classOnly.deniedEndpoints that are strings.
	DeniedEndpoints []string
	// Locked are, for GatewayParameters, those of spec.classOnly.locked that are strings.
	Locked []string
	// RedisSecret and RedisKey are, for GatewayParameters, those of spec.classOnly.rateLimit.redis.urlSecretRef; "" if absent.
	RedisSecret, RedisKey string
	// Targets are the spec.targetRefs of a BackendTLSPolicy; none if one of them cannot be decoded: then any Service of the
	// namespace may be a target.
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName
	// TrafficTargets and TargetSelectors are the spec.targetRefs, or the spec.targetRef, and the spec.targetSelectors of a
	// BackendTrafficPolicy, without those of kinds that cannot be targets; both are empty with AnyTraffic.
	TrafficTargets  []eg.PolicyTargetReference
	TargetSelectors []eg.TargetSelector
	// AnyTraffic is set if a BackendTrafficPolicy has a target that cannot be read: it may be any Gateway, ListenerSet or route of
	// the namespace.
	AnyTraffic bool
}

// Effect returns what an Undecoded causes, as a sentence without a period; "" if it has no noticeable effect.
func (u *Undecoded) Effect() string {
	switch u.Kind {
	case BackendTLSPolicy.Name:
		if len(u.Targets) == 0 {
			return "until it is valid, no Service of its namespace is reached, because its targets cannot be read"
		}
		return "until it is valid, its targets are not reached where no other policy precedes it"
	case BackendTrafficPolicy.Name:
		switch {
		case u.AnyTraffic:
			return "until it is valid, requests for all Gateways, ListenerSets and routes of its namespace are answered with 500, because its targets cannot be read"
		case u.hasRequests():
			return "until it is valid, requests for its targets are answered with 500 where it would be in force, alone or merged with another policy"
		case len(u.TrafficTargets)+len(u.TargetSelectors) > 0:
			return "until it is valid, its targets are served without it"
		}
	}
	return ""
}

// nothing reads nothing: it is only known that the object exists.
func nothing([]byte, *Undecoded) {}

// parametersLeftover reads the addresses that GatewayParameters deny, the fields that they lock, and the reference to their Redis
// server.
func parametersLeftover(data []byte, u *Undecoded) {
	var o any
	if json.Unmarshal(data, &o) != nil {
		return
	}
	for _, field := range []string{"spec", "classOnly"} {
		fields, _ := o.(map[string]any)
		o = fields[field]
	}
	closing, _ := o.(map[string]any)
	u.DeniedEndpoints, u.Locked = textsOf(closing["deniedEndpoints"]), textsOf(closing["locked"])
	o = any(closing)
	for _, field := range []string{"rateLimit", "redis", "urlSecretRef"} {
		fields, _ := o.(map[string]any)
		o = fields[field]
	}
	ref, _ := o.(map[string]any)
	u.RedisSecret, _ = ref["name"].(string)
	u.RedisKey, _ = ref["key"].(string)
}

// textsOf returns the strings in a list, or a single string as a list.
func textsOf(o any) (texts []string) {
	list, ok := o.([]any)
	if !ok {
		list = []any{o}
	}
	for _, e := range list {
		if text, ok := e.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// takeCreated reads the creation time of the object.
func (u *Undecoded) takeCreated(data []byte) {
	var created struct {
		Metadata struct{ CreationTimestamp metav1.Time }
	}
	if json.Unmarshal(data, &created) == nil {
		u.CreationTimestamp = created.Metadata.CreationTimestamp
	}
}

// policyTargets reads the targetRefs of a policy, unless one of them cannot be read, and its creation time.
func policyTargets(data []byte, u *Undecoded) {
	u.takeCreated(data)
	var policy struct {
		Spec struct {
			TargetRefs []json.RawMessage
		}
	}
	if json.Unmarshal(data, &policy) != nil {
		return
	}
	var list []gwv1.LocalPolicyTargetReferenceWithSectionName
	for _, raw := range policy.Spec.TargetRefs {
		var ref gwv1.LocalPolicyTargetReferenceWithSectionName
		if json.Unmarshal(raw, &ref) != nil || ref.Kind == "" || ref.Name == "" {
			return
		}
		list = append(list, ref)
	}
	u.Targets = list
}

// trafficPolicyTargets reads the targets of a BackendTrafficPolicy, unless one of them cannot be read, and its creation time. A
// policy without targets, such as a patch for another one, has no effect.
func trafficPolicyTargets(data []byte, u *Undecoded) {
	u.takeCreated(data)
	if !u.trafficTargets(data) {
		u.TrafficTargets, u.TargetSelectors, u.AnyTraffic = nil, nil, true
	}
}

// trafficTargets reports whether all targets of a BackendTrafficPolicy can be read.
func (u *Undecoded) trafficTargets(data []byte) bool {
	var policy struct {
		Spec map[string]json.RawMessage
	}
	if json.Unmarshal(data, &policy) != nil {
		return false
	}
	known, maybe := false, false
	for name, value := range policy.Spec {
		if string(value) == "null" {
			continue
		}
		ok := true
		switch lower := strings.ToLower(name); {
		case lower == "targetref":
			known = true
			var ref eg.PolicyTargetReference
			ok = json.Unmarshal(value, &ref) == nil && u.addTargets(ref)
		case lower == "targetrefs":
			known = true
			var refs []eg.PolicyTargetReference
			ok = json.Unmarshal(value, &refs) == nil && u.addTargets(refs...)
		case lower == "targetselectors":
			known = true
			var selectors []eg.TargetSelector
			ok = json.Unmarshal(value, &selectors) == nil && u.addSelectors(selectors)
		case strings.Contains(lower, "target"): // probably one of these, misspelled
			ok = false
		case refersToObjects.MatchString(name): // it may be one of these
			maybe = true
		}
		if !ok {
			return false
		}
	}
	return known || !maybe
}

// refersToObjects matches fields of a policy that name objects, such as parentRefs or tragetSelector.
var refersToObjects = regexp.MustCompile(`(?i)(ref|selector)s?$`)

// addTargets adds the targets of kinds that can be targets, and reports whether all can be read.
func (u *Undecoded) addTargets(refs ...eg.PolicyTargetReference) bool {
	for _, ref := range refs {
		if knownWithoutTraffic(ref.Kind) || ref.Namespace != nil && string(*ref.Namespace) != u.Namespace {
			continue
		}
		if ref.Name == "" || !hasTraffic(ref.Kind) {
			return false
		}
		ref.Group = gwv1.GroupName // it is easily forgotten, and all targets have this group
		u.TrafficTargets = append(u.TrafficTargets, ref)
	}
	return true
}

// addSelectors is addTargets for selectors.
func (u *Undecoded) addSelectors(selectors []eg.TargetSelector) bool {
	for i := range selectors {
		if knownWithoutTraffic(selectors[i].Kind) {
			continue
		}
		if !readable(&selectors[i]) {
			return false
		}
		u.TargetSelectors = append(u.TargetSelectors, selectors[i])
	}
	return true
}

// hasRequests reports whether any target of a BackendTrafficPolicy has requests, which can be answered, and not only connections or
// datagrams.
func (u *Undecoded) hasRequests() bool {
	requests := func(k gwv1.Kind) bool { return !slices.Contains([]gwv1.Kind{"TCPRoute", "TLSRoute", "UDPRoute"}, k) }
	return slices.ContainsFunc(u.TrafficTargets, func(ref eg.PolicyTargetReference) bool { return requests(ref.Kind) }) ||
		slices.ContainsFunc(u.TargetSelectors, func(s eg.TargetSelector) bool { return requests(s.Kind) })
}

// knownWithoutTraffic reports whether a kind is known and cannot be the target of a BackendTrafficPolicy, as opposed to a misspelled
// one.
func knownWithoutTraffic(name gwv1.Kind) bool { return Named(string(name)) != nil && !hasTraffic(name) }

// hasTraffic reports whether objects of a kind of the Gateway API can be targets of a BackendTrafficPolicy.
func hasTraffic(name gwv1.Kind) bool {
	k := Find(gwv1.GroupName, string(name))
	return k != nil && (k.Route() || k.Name == "Gateway" || k.Name == "ListenerSet")
}

// readable reports whether it is known what a selector selects.
func readable(s *eg.TargetSelector) bool {
	if _, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels, MatchExpressions: s.MatchExpressions}); err != nil || !hasTraffic(s.Kind) {
		return false
	}
	if s.Namespaces == nil {
		return true
	}
	_, err := metav1.LabelSelectorAsSelector(s.Namespaces.Selector)
	return err == nil && slices.Contains([]string{"", "Same", "All", "Selector"}, s.Namespaces.From) && (s.Namespaces.From != "Selector" || s.Namespaces.Selector != nil)
}
