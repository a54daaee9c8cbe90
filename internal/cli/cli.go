// Package cli implements the command line: one file per verb, and the wiring of source, translate, deliver and proxy that the verbs
// run. It exists so that main contains nothing else, and that tests run the same gateway in their own process.
//
// It may import everything; nothing but cmd/moongate and tests may import it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moongate-dev/moongate/internal/source/schema"
)

// Exit codes; scripts rely on them.
const (
	exitOK       = 0
	exitProblems = 1 // the command failed, or check found something
	exitUsage    = 2 // wrong flags, or input that cannot be read
)

// exitError ends the process with an exit code. An error without text was already reported.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage returns an error in the command line; the text ends with the remedy.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Main runs one command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitOK
	}
	report(stderr, err)
	return codeOf(err)
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitUsage // errors of cobra itself are wrong usage
}

// report prints an error on one line, unless it was reported already.
func report(stderr io.Writer, err error) {
	if text := err.Error(); text != "" {
		fmt.Fprintln(plainWriter{stderr}, "moongate: "+strings.ReplaceAll(text, "\n", " "))
	}
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "moongate",
		Short: "A Kubernetes Gateway API gateway in one binary",
		Long: `Moongate serves Gateway API manifests: Gateways, HTTPRoutes, Services, Secrets.

  moongate demo              see it work, with an example that you can edit
  moongate run -f PATH       serve your own manifests
  moongate check -f PATH     find problems in them, without serving`,
		SilenceErrors: true, // Main prints them, on one line
		SilenceUsage:  true,
		// A misspelled verb is an error, not a request for help.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var verbs []string
			for _, c := range cmd.Commands() {
				verbs = append(verbs, c.Name())
			}
			if near := schema.Nearest(args[0], verbs); near != "" {
				return usage("there is no verb %q; did you mean %s? See moongate --help", args[0], near)
			}
			return usage("there is no verb %q; see moongate --help", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = readBuild().Version
	root.SetVersionTemplate("moongate {{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			if near := schema.Nearest(name, names); near != "" {
				return usage("%w; did you mean --%s? See %s --help", err, near, cmd.CommandPath())
			}
		}
		return usage("%w; see %s --help", err, cmd.CommandPath())
	})
	shown, said := plainWriter{stdout}, plainWriter{stderr}
	root.AddCommand(newRun(stdout, stderr), newController(stdout, stderr), newDemo(stdout, stderr), newCheck(shown), newExplain(shown), newDiff(shown),
		newStatus(shown, said), newBackends(shown), newMigrate(shown, said), newVersion(stdout), newProxy(stdout, stderr))
	completeFlags(root)
	return root
}

// filesFlag adds -f, which every verb that reads manifests has.
func filesFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVarP(paths, "filename", "f", nil,
		"manifests: a YAML or JSON file, a folder with such files (read recursively), or - for standard input; repeat for more")
}

// classFlag adds --class.
func classFlag(cmd *cobra.Command, class *string) {
	cmd.Flags().StringVar(class, "class", "", "treat this GatewayClass as Moongate's, so that manifests for another gateway can be read unchanged")
}

// outputFlag adds -o. The first of the formats is the default.
func outputFlag(cmd *cobra.Command, format *string, formats ...string) {
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, f := range formats {
			if *format == f {
				return nil
			}
		}
		return usage("-o %q is not an output format of %s; use one of %s", *format, cmd.CommandPath(), strings.Join(formats, ", "))
	}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but got %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// needFiles checks that -f was given.
func needFiles(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		return usage("no manifests: name a file or folder, as in %s -f ./manifests", cmd.CommandPath())
	}
	return checkPaths(paths, cmd.CommandPath()+" -f")
}

// checkPaths rejects paths that are certainly wrong, such as URLs, and suggests similar file names. reader is the command with the
// flag that takes them.
func checkPaths(paths []string, reader string) error {
	for _, path := range paths {
		if strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://") {
			return usage("%s is a URL; read it from standard input: curl -sSfL %s | %s -", path, path, reader)
		}
		if _, err := os.Stat(path); path == "-" || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var names []string
		entries, _ := os.ReadDir(filepath.Dir(path)) // an absent folder has no entries
		for _, e := range entries {
			if e.Name() != filepath.Base(path) { // it is a link that leads nowhere
				names = append(names, e.Name())
			}
		}
		if near := schema.Nearest(filepath.Base(path), names); near != "" {
			return usage("%s: does not exist; did you mean %s?", path, filepath.Join(filepath.Dir(path), near))
		}
	}
	return nil
}
