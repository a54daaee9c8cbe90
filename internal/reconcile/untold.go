package reconcile

import (
	"log/slog"

	"github.com/moongate-dev/moongate/internal/translate"
)

// logUntold logs what keeps policies from being attached to anything: no status tells of it.
func logUntold(log *slog.Logger, all []translate.Untold) {
	for _, u := range all {
		log.Warn("a policy is attached to no object, so no status reports what is wrong with it", "policy", u.Object.String(), "field", u.Field, "problem", u.Message, "remedy", u.Remedy)
	}
}
