package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/explain"
)

func newExplain(stdout io.Writer) *cobra.Command {
	var paths, headers []string
	var format, expect, class string
	cmd := &cobra.Command{
		Use:   "explain -f PATH... (METHOD URL | tcp://HOST:PORT | tls://HOST:PORT | udp://HOST:PORT)",
		Short: "Show which listener, route, rule, filters and backend a request would take",
		Long: `Decides a request by the gateway's own tables, without sending it, and prints each step with
the object and the place in the manifests that it comes from, and the rule that came
second with why it lost.

The host of the URL is the TLS server name and, unless a Host header says otherwise, the
request's Host. An IP address as the host of the URL narrows the listeners to those on
that address.

With tcp://HOST:PORT it is about a connection to a listener of protocol TCP, of which nothing is known
but where it goes, with tls://HOST:PORT about one to a listener of protocol TLS, whose server name is the host, and with udp://HOST:PORT about
datagrams.

With --expect the exit code is 1 where the request would end otherwise: with another status, or
with another reason of the access log (redirect, route_not_found). A status below 300 is what
every backend of the rule is expected to answer.`,
		Example: `  moongate explain -f ./moongate-demo GET http://demo.example.com:8080/api/v1/users
  moongate explain -f ./moongate-demo -H 'X-Color: green' GET https://demo.example.com:8443/ -o json
  moongate explain -f ./moongate-demo --expect 404 GET http://demo.example.com:8080/nothing
  moongate explain -f ./manifests tcp://127.0.0.1:5432
  moongate explain -f ./manifests tls://db.example.com:443`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return usage("explain takes a method and a URL, as in moongate explain -f ./manifests GET http://example.com:8080/, or a connection, as tcp://127.0.0.1:5432 or tls://db.example.com:443, or datagrams, as udp://127.0.0.1:53")
			}
			if len(args) == 1 && len(headers) > 0 {
				return usage("-H is for requests: a connection has no header fields")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needFiles(cmd, paths); err != nil {
				return err
			}
			ask, err := questionOf(args, headers)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			off, err := readOffline(paths, class)
			if err != nil {
				return err
			}
			answer, err := explain.Explain(off.world(), ask)
			if err != nil {
				return &exitError{exitProblems, err}
			}
			if format != "text" {
				err = printAs(stdout, format, answer)
			} else {
				err = answer.Print(stdout)
			}
			if err == nil && expect != "" && !answer.Is(expect) {
				err = &exitError{exitProblems, fmt.Errorf("expected %s, but the answer is %s", expect, answer.Answer.Text)}
			}
			return err
		},
	}
	filesFlag(cmd, &paths)
	classFlag(cmd, &class)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a header field of the request, as 'Name: value'; repeat for more")
	cmd.Flags().StringVar(&expect, "expect", "", "status or reason that the request is expected to end with; exit code 1 where it does not")
	outputFlag(cmd, &format, "text", "json", "yaml")
	return cmd
}

// questionOf reads the arguments of explain: a method and a URL, or a connection.
func questionOf(args, headers []string) (*explain.Question, error) {
	if len(args) == 1 {
		return explain.NewConnection(args[0])
	}
	return explain.NewQuestion(args[0], args[1], headers)
}
