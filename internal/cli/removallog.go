package cli

import (
	"log/slog"
	"strings"

	"github.com/moongate-dev/moongate/internal/source/files"
)

// maxRemoved bounds how many objects a line names.
const maxRemoved = 5

// logRemoved logs which objects the manifests no longer have: a file that was emptied or moved away by mistake looks like one that is meant. Namespaces are left out,
// most of which no file defines.
func logRemoved(log *slog.Logger, c files.Change) {
	if c.Full {
		return
	}
	var names []string
	n := 0
	for _, id := range c.Deletes {
		if id.Kind == "Namespace" {
			continue
		}
		if n++; n <= maxRemoved {
			names = append(names, id.String())
		}
	}
	if n > 0 {
		log.Info("no longer in the manifests", "count", n, "objects", strings.Join(names, ", "), "others", max(0, n-maxRemoved))
	}
}
