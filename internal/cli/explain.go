package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moongate-dev/moongate/internal/status/show"
)

func newExplain(stdout io.Writer) *cobra.Command {
	var paths, headers []string
	var format string
	cmd := &cobra.Command{
		Use:   "explain -f PATH... METHOD URL",
		Short: "Show which listener, route, rule, filters and backend a request would take",
		Long: `Decides a request by the gateway's own tables, without sending it, and prints each step with
the object and the place in the manifests that it comes from, and the rule that came
second with why it lost.

The host of the URL is the TLS server name and, unless a Host header says otherwise, the
request's Host. An IP address as the host of the URL narrows the listeners to those on
that address.`,
		Example: `  moongate explain -f ./moongate-demo GET http://demo.example.com:8080/api/v1/users
  moongate explain -f ./moongate-demo -H 'X-Color: green' GET https://demo.example.com:8443/ -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage("explain takes a method and a URL, as in moongate explain -f ./manifests GET http://example.com:8080/")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needFiles(cmd, paths); err != nil {
				return err
			}
			ask, err := newQuestion(args[0], args[1], headers)
			if err != nil {
				return err
			}
			off, err := readOffline(paths)
			if err != nil {
				return err
			}
			answer, err := explain(off, ask)
			if err != nil {
				return &exitError{exitProblems, err}
			}
			if format != "text" {
				return printAs(stdout, format, answer)
			}
			return answer.print(stdout)
		},
	}
	filesFlag(cmd, &paths)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a header field of the request, as 'Name: value'; repeat for more")
	outputFlag(cmd, &format, "text", "json", "yaml")
	return cmd
}

// explanation is the decision on one request. Parts that were not reached are absent.
type explanation struct {
	Request    explainedRequest    `json:"request"`
	Listener   *explainedListener  `json:"listener,omitempty"`
	PassedOver []explainedListener `json:"passedOver,omitempty"` // other listeners of the port
	Rule       *explainedRule      `json:"rule,omitempty"`
	Filters    []string            `json:"filters,omitempty"`
	Forwarded  *explainedForward   `json:"forwarded,omitempty"`
	Backends   []explainedBackend  `json:"backends,omitempty"`
	RunnersUp  []explainedRule     `json:"runnersUp,omitempty"`
	Answer     explainedAnswer     `json:"answer"`
	// Complaints are conditions that may be why; only where the request fails.
	Complaints []show.Complaint `json:"complaints,omitempty"`
}

type explainedRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	Host   string `json:"host,omitempty"` // as routing sees it
	Path   string `json:"path,omitempty"` // normalised: what is matched and forwarded
}

type explainedListener struct {
	Listener string `json:"listener"` // "<namespace>/<gateway>/<name>"
	Hostname string `json:"hostname"` // "*" is every host
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
	Position string `json:"position,omitempty"` // of the Gateway
	Why      string `json:"why"`
}

type explainedRule struct {
	Route    string `json:"route"`
	Rule     string `json:"rule"`  // "rules[0] (name)"
	Match    string `json:"match"` // what it asks of a request
	Position string `json:"position,omitempty"`
	Matched  bool   `json:"matched"`       // the request satisfies it
	Why      string `json:"why,omitempty"` // it lost
}

type explainedForward struct {
	Method  string   `json:"method"`
	Target  string   `json:"target"`
	Host    string   `json:"host"`
	Headers []string `json:"headers,omitempty"` // of -H, after the filters
}

type explainedBackend struct {
	Backend   string   `json:"backend"` // "Service default/web port 80"
	Share     string   `json:"share"`   // of the rule's requests
	Position  string   `json:"position,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
	Filters   []string `json:"filters,omitempty"`
	Problem   string   `json:"problem,omitempty"` // what its share is answered
}

type explainedAnswer struct {
	Status int    `json:"status,omitempty"` // 0: the backend decides, or nothing is answered
	Reason string `json:"reason"`           // the word of access log and metrics
	Text   string `json:"text"`
}

func (e *explanation) print(w io.Writer) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("request", "%s %s", e.Request.Method, e.Request.URL)
	if e.Request.Path != "" {
		line("", "host %s, path %s", e.Request.Host, e.Request.Path)
	}
	if l := e.Listener; l != nil {
		line("listener", "%s", l)
	}
	for i := range e.PassedOver {
		line("", "not %s", &e.PassedOver[i])
	}
	if e.Rule != nil {
		line("rule", "%s", e.Rule)
	}
	for i := range e.RunnersUp {
		label := "runner-up"
		if e.Rule == nil {
			label = "no match"
		}
		line(label, "%s", &e.RunnersUp[i])
	}
	for _, f := range e.Filters {
		line("filter", "%s", f)
	}
	if f := e.Forwarded; f != nil {
		line("forwards", "%s %s with Host %s", f.Method, f.Target, f.Host)
		for _, h := range f.Headers {
			line("", "%s", h)
		}
	}
	for _, back := range e.Backends {
		line("backend", "%s", back)
		for _, f := range back.Filters {
			line("", "filter %s", f)
		}
	}
	line("answer", "%s", e.Answer.Text)
	for _, c := range e.Complaints {
		line("see", "%s", c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *explainedListener) String() string {
	return fmt.Sprintf("%s, %s port %d, hostname %s: %s%s", l.Listener, l.Protocol, l.Port, l.Hostname, l.Why, inParens(l.Position))
}

func (r *explainedRule) String() string {
	text := fmt.Sprintf("%s %s: %s%s", r.Route, r.Rule, r.Match, inParens(r.Position))
	if r.Why != "" {
		text += "; " + r.Why
	}
	return text
}

func (b explainedBackend) String() string {
	text := b.Share + " to " + b.Backend + inParens(b.Position)
	if len(b.Endpoints) > 0 {
		text += ": " + strings.Join(b.Endpoints, ", ")
	}
	if b.Problem != "" {
		text += ": " + b.Problem
	}
	return text
}

func inParens(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
