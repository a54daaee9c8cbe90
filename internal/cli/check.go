package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/status/show"
)

func newCheck(stdout io.Writer) *cobra.Command {
	var paths []string
	var format, class string
	cmd := &cobra.Command{
		Use:   "check -f PATH...",
		Short: "Say what is wrong with manifests, without serving them",
		Long: `Reads manifests and says what each object's status would be: every problem with its
object, field and remedy. Nothing is opened or contacted.

Exit code 0: all is well. 1: something is wrong. 2: the input cannot be read.`,
		Example: "  moongate check -f ./manifests\n  moongate check -f gateway.yaml -f routes.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needFiles(cmd, paths); err != nil {
				return err
			}
			off, err := readOffline(paths, class)
			if err != nil {
				return err
			}
			return printCheck(stdout, format, off)
		},
	}
	filesFlag(cmd, &paths)
	classFlag(cmd, &class)
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}

// printCheck prints the verdict; its error carries the exit code.
func printCheck(w io.Writer, format string, off *offline) error {
	objects, err := show.Objects(off.status.Items, controllerName)
	if err != nil {
		return err
	}
	complaints, mistakes, ignored := 0, 0, 0
	for _, o := range objects {
		complaints += len(o.Complaints())
	}
	for _, p := range off.status.Problems {
		if p.Ignored {
			ignored++
		} else {
			mistakes++
		}
	}
	if format == "table" {
		err = printCheckTable(w, off, objects)
	} else {
		err = printAs(w, format, off.status)
	}
	if err != nil {
		return err
	}
	found := complaints + mistakes
	if format == "table" {
		summary := fmt.Sprintf("%s, %s", count(found, "problem"), count(len(off.positions), "object"))
		if ignored > 0 {
			summary += fmt.Sprintf(", %s ignored", count(ignored, "kind"))
		}
		if _, err := fmt.Fprintln(w, summary); err != nil {
			return err
		}
	}
	switch {
	case len(off.positions) == 0 && mistakes > 0:
		return &exitError{code: exitUsage, err: fmt.Errorf("nothing in the input could be read as an object")}
	case found > 0:
		return &exitError{code: exitProblems}
	}
	return nil
}

func printCheckTable(w io.Writer, off *offline, objects []*show.Object) error {
	if len(objects) > 0 {
		if err := show.Table(w, objects, off.placeOf); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, p := range off.status.Problems {
		mark := "problem"
		if p.Ignored {
			mark = "ignored"
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", mark, problemLine(p)); err != nil {
			return err
		}
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
