package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// settings describes other settings of a rule for the requests that it forwards, one line each: its timeouts, and each policy that
// it contains as a message.
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
	slices.Sort(lines[policies:]) // because the order of Range is random
	return lines
}

// policy describes what a BackendTrafficPolicy sets for a rule's requests, and what other policies set that is not in force.
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

// policiesOf returns the BackendTrafficPolicies that are in force for a rule, with their kind: several if they are merged.
func policiesOf(t *config.RuleTraffic) (all []string) {
	kind, names, _ := strings.Cut(t.GetPolicy(), " ")
	for _, name := range strings.Split(names, ", merged with ") {
		all = append(all, kind+" "+name)
	}
	return all
}

// traffic describes the settings of a BackendTrafficPolicy for a backend, one line for each part.
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
