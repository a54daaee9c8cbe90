package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
)

func TestLogRemoved(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	gone := func(kindOf string, n int) (list []kind.ObjectKey) {
		for i := range n {
			list = append(list, kind.ObjectKey{Kind: kindOf, Namespace: "default", Name: fmt.Sprint("r", i)})
		}
		return list
	}
	for _, c := range []struct {
		change files.Change
		want   string
	}{
		{files.Change{}, ""},
		{files.Change{Deletes: gone("Namespace", 1)}, ""},
		{files.Change{Full: true, Deletes: gone("HTTPRoute", 1)}, ""},
		{files.Change{Deletes: append(gone("HTTPRoute", 1), gone("Namespace", 1)...)}, `number=1 objects="HTTPRoute default/r0"`},
		{files.Change{Deletes: gone("HTTPRoute", 7)}, `number=7 objects="HTTPRoute default/r0,HTTPRoute default/r1,HTTPRoute default/r2,HTTPRoute default/r3,HTTPRoute default/r4 and 2 others"`},
	} {
		out.Reset()
		logRemoved(log, c.change)
		if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), `msg="no longer in force" `); got != c.want {
			t.Errorf("%v: %s", c.change.Deletes, out.String())
		}
	}
}
