package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// settings are what else a rule says of requests that it forwards, a line each: its timeouts, and each policy that it has as a message.
func settings(r *config.Rule) (lines []string) {
	if n := r.RequestTimeoutNanos; n != 0 {
		lines = append(lines, "timeouts.request "+time.Duration(max(n, 0)).String())
	}
	if n := r.BackendRequestTimeoutNanos; n != 0 {
		lines = append(lines, "timeouts.backendRequest "+time.Duration(max(n, 0)).String())
	}
	lines = append(lines, policy(r.Traffic)...)
	policies := len(lines)
	r.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Kind() == protoreflect.MessageKind && !field.IsList() && field.Name() != "failure" && field.Name() != "session_persistence" && field.Name() != "traffic" { // see sessions and policy
			lines = append(lines, string(field.Name())+": "+words(v.Message()))
		}
		return true
	})
	slices.Sort(lines[policies:]) // Range has no order
	return lines
}

// policy is what a BackendTrafficPolicy says of a rule's requests beside what rules can say themselves, and what others say that is not in force.
func policy(t *config.RuleTraffic) (lines []string) {
	if t == nil {
		return nil
	}
	line := t.Policy + " is in force"
	if d := time.Duration(t.StreamIdleTimeoutNanos); d > 0 {
		line += ", stream idle timeout " + d.String()
	}
	if d := time.Duration(t.MaxStreamDurationNanos); d > 0 {
		line += ", streams end after " + d.String()
	}
	if n := t.BufferLimitBytes; n > 0 {
		line += fmt.Sprintf(", up to %d bytes of a body are kept to send it again", n)
	}
	lines = append(append(lines, line), shaping(t)...)
	lines = append(lines, rateLimits(t.RateLimits)...)
	lines = append(lines, responseOverrides(t.ResponseOverrides)...)
	for _, h := range t.Hidden {
		lines = append(lines, fmt.Sprintf("BackendTrafficPolicy %s is overridden by it, which has no %s (set mergeType to merge them)", h.Policy, strings.Join(h.Fields, ", ")))
	}
	return lines
}

// policiesOf are the BackendTrafficPolicies that are in force for a rule, with their kind: more than one where they are merged.
func policiesOf(t *config.RuleTraffic) (all []string) {
	kind, names, _ := strings.Cut(t.GetPolicy(), " ")
	for _, name := range strings.Split(names, ", merged with ") {
		all = append(all, kind+" "+name)
	}
	return all
}

// traffic is how a backend is spoken to as a BackendTrafficPolicy says, a line for each of its parts.
func traffic(t *config.BackendTraffic) (lines []string) {
	t.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Message() != nil {
			lines = append(lines, strings.ReplaceAll(string(field.Name()), "_", " ")+": "+words(v.Message())+", by "+t.Policy)
		}
		return true
	})
	slices.Sort(lines)
	return lines
}
