package reconcile

import (
	"log/slog"

	"github.com/moongate-dev/moongate/internal/translate"
)

// logUnattachedPolicies logs why policies are attached to no object, because no status reports it.
func logUnattachedPolicies(log *slog.Logger, all []translate.UnattachedPolicy) {
	for _, u := range all {
		log.Warn("a policy is attached to no object, so no status reports what is wrong with it", "policy", u.Object.String(), "field", u.Field, "problem", u.Message, "remedy", u.Remedy)
	}
}
