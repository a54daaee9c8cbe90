package cli

import (
	"log/slog"

	"github.com/moongate-dev/moongate/internal/source/files"
)

// maxRemoved bounds how many objects a line names.
const maxRemoved = 5

// logRemoved logs which objects of the manifests are no longer in force: a file that was emptied or moved away by mistake looks like one that is meant. Namespaces are left
// out, most of which no file defines.
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
