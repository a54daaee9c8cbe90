package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the Makefile; with `go install`, Go records them.
var version, commit string

// build describes from what this binary was built.
type build struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	GatewayAPI string `json:"gatewayAPI"`
}

func readBuild() build {
	b := build{Version: version, Commit: cmp.Or(commit, "unknown"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, GatewayAPI: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == "sigs.k8s.io/gateway-api" {
			b.GatewayAPI = dep.Version
		}
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		b.Commit += " (modified)"
	}
	return b
}

func newVersion(stdout io.Writer) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of Moongate",
		Example: "  moongate version\n  moongate version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			if format != "table" {
				return printAs(stdout, format, b)
			}
			_, err := fmt.Fprintf(stdout, "version      %s\ncommit       %s\ngo           %s %s\nGateway API  %s\n",
				b.Version, b.Commit, b.Go, b.Platform, b.GatewayAPI)
			return err
		},
	}
	outputFlag(cmd, &format, "table", "json", "yaml")
	return cmd
}
