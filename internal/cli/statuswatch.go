package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// statusWatch prints the status, and then its changes.
type statusWatch struct {
	out, errs io.Writer
	filter    *objectFilter
	ask       func() (*admin.Status, error)

	rows     map[string]string // printed objects, by show.Object.String
	problems map[string]bool   // printed problems, as lines
	failed   bool              // the present failure was already reported
}

// run queries repeatedly until ctx ends. It returns an error if the first query fails; later failures are logged once until a query
// succeeds.
func (w *statusWatch) run(ctx context.Context, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for first := true; ; first = false {
		status, err := w.ask()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil && !w.failed:
			w.failed = true
			fmt.Fprintf(w.errs, "%s %s\n", clock(), oneLine(err.Error()))
		case err == nil:
			if w.failed {
				fmt.Fprintf(w.errs, "%s answers again\n", clock())
			}
			w.failed = false
			if err := w.show(status, first); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show prints what was not printed yet; at first everything.
func (w *statusWatch) show(status *admin.Status, first bool) error {
	objects, err := w.filter.apply(status)
	var missing *exitError // it may be created later
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	if err != nil && first {
		fmt.Fprintf(w.errs, "%s; waiting for it\n", oneLine(err.Error()))
	}
	rows, problems := map[string]string{}, map[string]bool{}
	var changed []*show.Object
	for _, o := range objects {
		var row strings.Builder
		if err := show.Table(&row, []*show.Object{o}, nowhere); err != nil {
			return err
		}
		rows[o.String()] = row.String()
		if w.rows[o.String()] != row.String() {
			changed = append(changed, o)
		}
	}
	var lines []string
	for name := range w.rows {
		if rows[name] == "" {
			lines = append(lines, name+" is gone")
		}
	}
	slices.Sort(lines)
	for _, p := range status.Problems {
		line := markOf(p) + ": " + problemLine(p)
		if problems[line] = true; !w.problems[line] {
			lines = append(lines, line)
		}
	}
	var solved []string
	for line := range w.problems {
		if !problems[line] {
			solved = append(solved, "no more: "+line)
		}
	}
	slices.Sort(solved)
	lines = append(lines, solved...)
	w.rows, w.problems = rows, problems
	if !first && len(changed)+len(lines) == 0 {
		return nil
	}
	if !first {
		fmt.Fprintf(w.out, "\n%s\n", clock())
	}
	if len(changed) > 0 || first {
		if err := show.Table(w.out, changed, nowhere); err != nil {
			return err
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			return err
		}
	}
	return nil
}

func clock() string { return time.Now().Format(time.TimeOnly) }
