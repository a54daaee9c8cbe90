package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/explain"
)

func newExplain(stdout io.Writer) *cobra.Command {
	var in input
	var headers []string
	var format, expect, zone, gateway string
	cmd := &cobra.Command{
		Use:   "explain (-f PATH... | --kube | --admin ADDRESS) ([METHOD] URL | tcp://HOST:PORT | tls://HOST:PORT | udp://HOST:PORT)",
		Short: "Show which listener, route, rule, filters and backend a request would take",
		Long: `Routes a request with the gateway's own tables, without sending it. Prints each step with
the object, and its position in the manifests, that determines it, and the rule that came
second with the reason why it lost.

The default method is GET. The host of the URL is the TLS server name and, unless a Host header is given, the
request's Host. If the host of the URL is an IP address, only listeners on that address are considered.

With --kube the objects of a cluster are used, and manifests with -f are treated as if they were applied to it. There
each Gateway has its own ports: if several Gateways listen on the port, --gateway selects one.

With --admin the running gateway whose admin server listens at that address decides, with its current configuration.

tcp://HOST:PORT is a connection to a listener of protocol TCP, tls://HOST:PORT one to a listener of
protocol TLS with the host as its server name, and udp://HOST:PORT stands for datagrams.

With --expect the exit code is 1 if the request would end with another status, or another reason of the access log
(such as redirect or route_not_found). A status below 300 is the answer that is expected
of every backend of the rule.`,
		Example: `  moongate explain -f ./moongate-demo GET http://demo.example.com:8080/api/v1/users
  moongate explain -f ./moongate-demo -H 'X-Color: green' GET https://demo.example.com:8443/ -o json
  moongate explain -f ./moongate-demo --expect 404 GET http://demo.example.com:8080/nothing
  moongate explain --kube GET http://shop.example.com/cart
  moongate explain --admin 127.0.0.1:9901 http://demo.example.com:8080/
  moongate explain -f ./manifests tcp://127.0.0.1:5432
  moongate explain -f ./manifests tls://db.example.com:443`,
		Args: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				if info, err := os.Stat(arg); err == nil && !slices.Contains(methods, arg) {
					what := "file"
					if info.IsDir() {
						what = "folder"
					}
					return usage("%[1]s is a %[2]s: explain takes manifests by -f and then a URL, as in moongate explain -f %[1]s GET http://example.com:8080/", arg, what)
				}
			}
			if len(args) != 1 && len(args) != 2 {
				return usage("explain takes a method and a URL, as in moongate explain -f ./manifests GET http://example.com:8080/, or a connection, as tcp://127.0.0.1:5432 or tls://db.example.com:443, or datagrams, as udp://127.0.0.1:53")
			}
			if len(args) == 1 && len(headers) > 0 && !isRequest(args[0]) {
				return usage("-H is for requests: a connection has no header fields")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := in.check(cmd); err != nil {
				return err
			}
			if gateway != "" && !in.cluster.use && in.admin == "" {
				return usage("--gateway is for the Gateways of a cluster: add --kube, or --admin with the address of its controller; those of manifests share their ports")
			}
			ask, err := questionOf(args, headers)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			var answer *explain.Explanation
			if in.admin != "" {
				if zone != "" {
					return usage("--zone is for a hypothetical proxy: with --admin the zone of the running one is used")
				}
				answer, err = explainRunning(cmd.Context(), in.admin, args, headers, gateway)
			} else {
				answer, err = in.explain(cmd, ask, gateway, zone)
			}
			if err != nil {
				return err
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
	in.flags(cmd)
	in.adminFlag(cmd)
	in.redisFlag(cmd)
	in.bindFlag(cmd)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return startingWith(typed, completeQuestion(&in, args)), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a header field of the request, as 'Name: value'; repeat for more")
	cmd.Flags().StringVar(&expect, "expect", "", "expected status or reason of the answer; exit code 1 if it is another one")
	cmd.Flags().StringVar(&zone, "zone", "", "zone of the proxy, as in topology.kubernetes.io/zone, for backends whose load balancer prefers the proxy's zone; moongate backends shows that of a running proxy")
	cmd.Flags().StringVar(&gateway, "gateway", "", "with --kube or the controller's --admin, the Gateway that gets the request, as NAMESPACE/NAME; required if several Gateways listen on the port, and with --admin if there are several Gateways")
	outputFlag(cmd, &format, "text", "json", "yaml")
	return cmd
}

// explain answers a question from the objects of manifests or of a cluster.
func (in *input) explain(cmd *cobra.Command, ask *explain.Question, gateway, zone string) (*explain.Explanation, error) {
	off, err := in.readOffline(cmd)
	if err != nil {
		return nil, err
	}
	if in.cluster.use {
		if err := off.narrow(gateway, ask); err != nil {
			return nil, err
		}
	}
	world := off.world()
	world.Zone = zone
	answer, err := explain.Explain(world, ask)
	if err != nil {
		return nil, &exitError{exitProblems, err}
	}
	return answer, nil
}

// methods are the common methods.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// questionOf reads the arguments of explain: a method and a URL, or a connection.
func questionOf(args, headers []string) (*explain.Question, error) {
	switch url := args[len(args)-1]; {
	case !strings.Contains(url, "://") && noHost(url):
		return nil, fmt.Errorf("%q has no host; write a URL, as in http://example.com:8080/", url)
	case !strings.Contains(url, "://"):
		return nil, fmt.Errorf("%q has no scheme; write http://%s for a request, or tcp://, tls:// or udp:// with host and port for a connection", url, strings.TrimPrefix(url, "//"))
	case len(args) == 2 && slices.Contains(methods, strings.ToUpper(args[0])) && !slices.Contains(methods, args[0]):
		return nil, fmt.Errorf("methods are in upper case: write %s for %s", strings.ToUpper(args[0]), args[0])
	case len(args) == 2:
		return explain.NewQuestion(args[0], args[1], headers)
	case isRequest(args[0]):
		return explain.NewQuestion(http.MethodGet, args[0], headers)
	}
	return explain.NewConnection(args[0])
}

// noHost reports whether what is given in place of a URL is only the target of a request, such as /path or *.
func noHost(url string) bool {
	return strings.HasPrefix(url, "*") || strings.HasPrefix(url, "/") && !strings.HasPrefix(url, "//")
}

// isRequest reports whether a URL stands for a request, not for a connection.
func isRequest(url string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}
