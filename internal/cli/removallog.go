package cli

import (
	"log/slog"

	"github.com/moongate-dev/moongate/internal/source/files"
)

// maxRemoved is the maximum number of objects that a line names.
const maxRemoved = 5

// logRemoved logs which objects of the manifests are no longer in force: a file that was emptied or moved by mistake looks like an
// intended change. Namespaces are left out, because most are not defined in files.
func logRemoved(log *slog.Logger, c files.Change) {
	if c.Full {
		return
	}
	var names []string
	for _, id := range c.Deletes {
		if id.Kind != "Namespace" {
			names = append(names, id.String())
		}
	}
	if len(names) > 0 {
		log.Info("no longer in force", "number", len(names), "objects", firstOf(names, maxRemoved))
	}
}
