package explain

import (
	"slices"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// mayCause reports whether what an object says against itself may be why the request fails. Warnings are no reason, unless TLS is.
func (d *decision) mayCause(c show.Complaint) bool {
	return !c.Warns() || slices.Contains([]string{observe.ReasonMisdirected.String(), observe.ReasonTLSHandshakeFailed.String()}, d.Answer.Reason)
}
