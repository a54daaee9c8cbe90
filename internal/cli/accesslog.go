package cli

import (
	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

// accessLogText explains the flag --access-log of run and proxy.
const accessLogText = "json or stdout (both mean standard output), off, the URL of an OTLP collector over HTTP, or a file, which is reopened on SIGHUP, and if it was renamed or removed"

// accessLogFlags configure the content of access log lines; the zero value logs everything, as JSON.
type accessLogFlags struct {
	Format  string
	Members []string
	Redact  []string
	OneIn   int
}

func (f *accessLogFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Format, "access-log-format", accesslog.JSON,
		`json, combined (the Combined Log Format), or a text with members in braces, such as "{start_time} {method} {path} {response_code}"`)
	flags.StringSliceVar(&f.Members, "access-log-members", nil,
		"members of the lines, such as all,request_header.referer; see docs/access-log.md (default: all)")
	flags.StringSliceVar(&f.Redact, "access-log-redact", nil, "names of query parameters whose values are logged as *; * means all")
	flags.IntVar(&f.OneIn, "access-log-one-in", 1, "log one of this many requests, and up to 100 a second that failed without a fault of the client")
}

func (f *accessLogFlags) options() accesslog.Options {
	return accesslog.Options{Format: f.Format, Members: f.Members, Redact: f.Redact, OneIn: f.OneIn}
}

// check returns what is wrong with the flags.
func (f *accessLogFlags) check() error {
	if _, problems := accesslog.Compile(f.options()); len(problems) > 0 {
		p := problems[0]
		return usage("--access-log-%s: %s; %s",
			[...]string{accesslog.OptionFormat: "format", accesslog.OptionMembers: "members", accesslog.OptionRedact: "redact", accesslog.OptionOneIn: "one-in"}[p.Option], p.Text, p.Remedy)
	}
	return nil
}
