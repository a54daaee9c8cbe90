package explain

import (
	"slices"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// settings are what else a rule says of requests that it forwards, a line each: its timeouts, and each policy that it has as a message.
func settings(r *config.Rule) (lines []string) {
	if d := time.Duration(r.RequestTimeoutNanos); d > 0 {
		lines = append(lines, "timeouts.request "+d.String())
	}
	if d := time.Duration(r.BackendRequestTimeoutNanos); d > 0 {
		lines = append(lines, "timeouts.backendRequest "+d.String())
	}
	policies := len(lines)
	r.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Kind() == protoreflect.MessageKind && !field.IsList() && field.Name() != "failure" && field.Name() != "session_persistence" { // see sessions
			lines = append(lines, string(field.Name())+" "+compact(v.Message().Interface()))
		}
		return true
	})
	slices.Sort(lines[policies:]) // Range has no order
	return lines
}
