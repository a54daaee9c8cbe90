package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/status/show"
)

func newCheck(stdout io.Writer) *cobra.Command {
	var in input
	var format string
	var strict bool
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Report problems in manifests, without serving them",
		Long: `Reads manifests and reports what the status of each object would be: every problem with its
object, field and remedy. No port is opened, and nothing is contacted. Paths may also be given with -f; the
path - is standard input.

With --kube manifests are treated as if they were applied to a cluster, so they may refer to its objects; without
paths all objects of the cluster are checked. Nothing is changed there.

With --admin the current state of a running gateway is checked: the statuses of its objects, and the manifests that it
cannot use. Warnings about manifests are not available there.

Warnings are about valid input that is probably not intended: objects for other gateways, such as an
Ingress, which have no effect; certificates that clients will reject; Services without endpoints;
matches that never match because another one takes precedence.

With -o text each problem is a line that begins with its file and line; with -o github it is a workflow command that
GitHub shows beside the line in a pull request; with -o sarif the output is a SARIF 2.1.0 log, for code scanning.

Exit code 0: no problems. 1: there are problems. 2: the input cannot be read.`,
		Example: "  moongate check ./manifests\n  moongate check -f gateway.yaml -f routes.yaml -o json\n  kubectl kustomize . | moongate check -\n  moongate check --kube ./manifests\n  moongate check --admin 127.0.0.1:9901\n  moongate check -o github ./manifests",
		RunE: func(cmd *cobra.Command, args []string) error {
			in.paths = append(in.paths, args...)
			if err := in.check(cmd); err != nil {
				return err
			}
			var off *offline
			var err error
			if in.admin != "" {
				off, err = running(cmd.Context(), in.admin)
			} else {
				off, err = in.readOffline(cmd)
			}
			if err != nil {
				return err
			}
			return printCheck(stdout, format, off, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as problems")
	in.flags(cmd)
	in.adminFlag(cmd)
	in.redisFlag(cmd)
	in.bindFlag(cmd)
	cmd.ValidArgsFunction = completeManifests
	outputFlag(cmd, &format, "table", "text", "json", "yaml", "github", "sarif")
	return cmd
}

// printCheck prints the result; its error carries the exit code.
func printCheck(w io.Writer, format string, off *offline, strict bool) error {
	objects, err := show.Objects(off.status.Items, off.controller)
	if err != nil {
		return err
	}
	show.Blame(objects, off.refused)
	show.Suggest(objects, off.suggest.rewrite)
	show.LeaveOut(objects, off.warned())
	if off.about != nil {
		status := off.status
		status.Items = []any{}
		var shown []*show.Object
		for i, o := range objects {
			if off.about[o.String()] {
				shown, status.Items = append(shown, o), append(status.Items, off.status.Items[i])
			}
		}
		objects, off.status = shown, status
	}
	if off.empty != nil {
		return off.empty
	}
	complaints, mistakes, ignored, documents, warnings := 0, 0, 0, 0, 0
	unread, named := false, false // whether a problem of the manifests names no object, and whether one does
	for _, o := range objects {
		for _, c := range o.Complaints() {
			switch {
			case c.Warns():
				warnings++
			case !c.Follows: // a problem with one cause is reported once
				complaints++
			}
		}
	}
	for _, p := range off.status.Problems {
		switch {
		case p.Warning:
			warnings++
		case ofOtherProgram(p):
			documents++
		case p.Ignored:
			ignored++
		default:
			mistakes++
			if p.File != "" { // otherwise it is about the cluster
				unread, named = unread || p.Object == "", named || p.Object != ""
			}
		}
	}
	switch format {
	case "table":
		err = printCheckTable(w, off, objects)
	case "text":
		err = printFaultsText(w, faultsOf(off, objects))
	case "github":
		err = printFaultsGitHub(w, faultsOf(off, objects))
	case "sarif":
		err = printFaultsSARIF(w, faultsOf(off, objects))
	default:
		err = printAs(w, format, off.status)
	}
	if err != nil {
		return err
	}
	found := complaints + mistakes
	if format == "table" || format == "text" {
		summary := fmt.Sprintf("%s, %s", count(found, "problem"), count(off.count, "object"))
		if warnings > 0 {
			summary += ", " + count(warnings, "warning")
		}
		if ignored > 0 {
			summary += fmt.Sprintf(", %s ignored", count(ignored, "kind"))
		}
		if documents > 0 {
			summary += fmt.Sprintf(", %s ignored", count(documents, "document"))
		}
		if _, err := fmt.Fprintln(w, summary); err != nil {
			return err
		}
	}
	switch {
	case off.count == 0 && unread && !named:
		return &exitError{code: exitUsage, err: fmt.Errorf("nothing in the input could be read as an object")}
	case found > 0, strict && warnings > 0:
		return &exitError{code: exitProblems}
	}
	return nil
}

// warned returns a function that reports whether a warning is about a field of an object.
func (o *offline) warned() func(object *show.Object, field string) bool {
	type at struct{ object, field string }
	warned := map[at]bool{}
	for _, p := range o.status.Problems {
		if p.Warning {
			warned[at{p.Object, p.Field}] = true
		}
	}
	return func(object *show.Object, field string) bool { return warned[at{object.String(), field}] }
}

// ofOtherProgram reports whether a problem is that a document in a folder is not a Kubernetes object.
func ofOtherProgram(p admin.Problem) bool { return p.Ignored && p.Object == "" }

func printCheckTable(w io.Writer, off *offline, objects []*show.Object) error {
	if len(objects) > 0 {
		if err := show.Table(w, objects, off.placeOf); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, p := range off.status.Problems {
		if _, err := fmt.Fprintf(w, "%s: %s\n", markOf(p), problemLine(p)); err != nil {
			return err
		}
	}
	return nil
}

// markOf returns the word that begins the line of a problem.
func markOf(p admin.Problem) string {
	switch {
	case p.Warning:
		return "warning"
	case p.Ignored:
		return "ignored"
	}
	return "problem"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
