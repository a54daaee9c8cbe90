package kind

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Undecoded takes the place of an object that exists and was never read whole, because it does not fit its Go type or, in a file, is not
// valid. What it closes is read all the same: it must not be open because of a mistake beside it. It ends with the object itself, or with its
// deletion.
type Undecoded struct {
	metav1.ObjectMeta // namespace and name
	Kind              string
	Error             string // why it cannot be read
	// DeniedEndpoints are, of GatewayParameters, those of spec.classOnly.deniedEndpoints that are strings.
	DeniedEndpoints []string
	// Locked are, of GatewayParameters, those of spec.classOnly.locked that are strings.
	Locked []string
	// RedisSecret and RedisKey are, of GatewayParameters, spec.classOnly.rateLimit.redis.urlSecretRef; "" where it is not there.
	RedisSecret, RedisKey string
	// Targets are, of a BackendTLSPolicy, its spec.targetRefs; none if one of them cannot be decoded: it may be any Service of the namespace.
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName
}

// nothing takes nothing: it is only known that the object exists.
func nothing([]byte, *Undecoded) {}

// parametersLeftover takes the addresses that GatewayParameters deny, the fields that they lock, and where their Redis stands.
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

// textsOf returns those elements of a list, or of one element without a list, that are strings.
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

// policyTargets takes the targetRefs of a policy, unless one of them cannot be read.
func policyTargets(data []byte, u *Undecoded) {
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
