package explain

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// Explanation is the decision about one request, or one connection. Parts that were not reached are absent.
type Explanation struct {
	Request    Request    `json:"request"`
	Listener   *Listener  `json:"listener,omitempty"`
	PassedOver []Listener `json:"passedOver,omitempty"` // other listeners of the port
	// Certificate is the server certificate; HTTPS only.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Demands describes the required client certificate; "" if none.
	Demands string `json:"demands,omitempty"`
	// ListenerFilters run before the rule is selected, Filters afterwards.
	ListenerFilters []string `json:"listenerFilters,omitempty"`
	Rule            *Rule    `json:"rule,omitempty"`
	Filters         []string `json:"filters,omitempty"`
	Forwarded       *Forward `json:"forwarded,omitempty"`
	Settings        []string `json:"settings,omitempty"` // of the rule: timeouts and policies
	// Notes are settings of the policy in force that have no effect, and why.
	Notes     []string  `json:"notes,omitempty"`
	Backends  []Backend `json:"backends,omitempty"`
	RunnersUp []Rule    `json:"runnersUp,omitempty"`
	Answer    Answer    `json:"answer"`
	// Complaints are conditions that may be why the request fails, or, if it is served, of what is missing nevertheless.
	Complaints []show.Complaint `json:"complaints,omitempty"`
	// Refused are documents of the input that are not part of this decision because they could not be used.
	Refused []string `json:"refused,omitempty"`
}

// Request is the request or connection of the question.
type Request struct {
	Method string `json:"method,omitempty"` // empty for a connection
	URL    string `json:"url"`
	Host   string `json:"host,omitempty"` // as used for routing
	Path   string `json:"path,omitempty"` // normalized: what is matched and forwarded
}

// Listener is a listener of the port, and why it was selected or not.
type Listener struct {
	Listener string `json:"listener"` // "<namespace>/<gateway>/<name>"
	Hostname string `json:"hostname"` // "*" means every host
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol"`
	Position string `json:"position,omitempty"` // of the Gateway or ListenerSet
	Why      string `json:"why"`
}

// Certificate is the server certificate that a TLS client gets.
type Certificate struct {
	Secret   string    `json:"secret"` // "Secret default/www"
	Names    []string  `json:"names,omitempty"`
	NotAfter time.Time `json:"notAfter"`
	Position string    `json:"position,omitempty"`
	// Problem is why clients will not trust it, as far as its names and dates determine.
	Problem string `json:"problem,omitempty"`
}

// Rule is a rule that was examined.
type Rule struct {
	Route    string `json:"route"`
	Rule     string `json:"rule"`  // "rules[0] (name)"
	Match    string `json:"match"` // its conditions
	Position string `json:"position,omitempty"`
	Matched  bool   `json:"matched"`       // the request satisfies its conditions
	Why      string `json:"why,omitempty"` // why it was not selected
}

// Forward is the request as it is sent to a backend.
type Forward struct {
	Method  string   `json:"method"`
	Target  string   `json:"target"`
	Host    string   `json:"host"`
	Headers []string `json:"headers,omitempty"` // of -H, after the filters
}

// Backend is a backend of the rule.
type Backend struct {
	Backend string `json:"backend"` // "Service default/web port 80"
	Share   string `json:"share"`   // of the rule's requests
	// Speaks is the protocol of its endpoints; empty for an invalid backendRef.
	Speaks    string   `json:"speaks,omitempty"`
	Position  string   `json:"position,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
	Filters   []string `json:"filters,omitempty"`
	Problem   string   `json:"problem,omitempty"` // how its share is answered
	// Retries describes the limit of retries to the Service, for all rules together; empty if there is none.
	Retries string `json:"retries,omitempty"`
	// Traffic describes the settings of a BackendTrafficPolicy for it, one line for each part; empty if there are none.
	Traffic []string `json:"traffic,omitempty"`
	// Zones describes how its requests are distributed among zones; empty if zones are ignored.
	Zones string `json:"zones,omitempty"`
	// Sessions describes its session persistence, and the request's own session; empty if there is none.
	Sessions string `json:"sessions,omitempty"`
	// Upgrade describes what happens to the request's upgrade to another protocol; empty if it asks for none.
	Upgrade string `json:"upgrade,omitempty"`
}

// Answer is how the request ends.
type Answer struct {
	Status int    `json:"status,omitempty"` // 0: the backend decides, or there is no response
	Reason string `json:"reason"`           // the word in access log and metrics
	Text   string `json:"text"`
	// Except describes which requests end differently, and how, if that depends on what the question does not contain; Text includes
	// it.
	Except string `json:"except,omitempty"`
}

// Is reports whether the request ends as expected: with this status or this reason. A status below 300 comes from a backend, unless
// the gateway itself answers with one, so it is expected of every request that a healthy backend gets.
func (e *Explanation) Is(expected string) bool {
	if status, err := strconv.Atoi(expected); err == nil && status < 300 && e.Answer.Status == 0 {
		return e.Answer.Reason == observe.ReasonOK.String() && e.Answer.Except == "" && !slices.ContainsFunc(e.Backends, func(b Backend) bool { return b.Problem != "" })
	}
	return expected == e.Answer.Reason || expected == strconv.Itoa(e.Answer.Status) && e.Answer.Status != 0
}

// mostRefused is the maximum number of Refused that are printed: a cluster may have hundreds, and the question is about one request.
const mostRefused = 5

// Print writes the steps in text, one line each.
func (e *Explanation) Print(w io.Writer) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	if e.Request.Method == "" {
		line("connection", "%s", e.Request.URL)
	} else {
		line("request", "%s %s", e.Request.Method, e.Request.URL)
	}
	if e.Request.Path != "" {
		line("", "host %s, path %s", e.Request.Host, e.Request.Path)
	}
	if l := e.Listener; l != nil {
		line("listener", "%s", l)
	}
	if c := e.Certificate; c != nil {
		line("shows", "%s", c)
	}
	if e.Demands != "" {
		line("demands", "%s", e.Demands)
	}
	for i := range e.PassedOver {
		line("", "not %s", &e.PassedOver[i])
	}
	for _, f := range e.ListenerFilters {
		line("filter", "%s", f)
	}
	if e.Rule != nil {
		line("rule", "%s", e.Rule)
	}
	for i := range e.RunnersUp {
		label := "runner-up"
		if !e.RunnersUp[i].Matched {
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
	for _, setting := range e.Settings {
		line("setting", "%s", setting)
	}
	for _, note := range e.Notes {
		line("note", "%s", note)
	}
	for _, back := range e.Backends {
		line("backend", "%s", back)
		for _, f := range back.Filters {
			line("", "filter %s", f)
		}
		if back.Retries != "" {
			line("", "%s", back.Retries)
		}
		for _, part := range back.Traffic {
			line("", "%s", part)
		}
		if back.Zones != "" {
			line("", "%s", back.Zones)
		}
		if back.Sessions != "" {
			line("", "%s", back.Sessions)
		}
		if back.Upgrade != "" {
			line("", "%s", back.Upgrade)
		}
	}
	line("answer", "%s", e.Answer.Text)
	for _, c := range e.Complaints {
		line("see", "%s", c)
	}
	for i, r := range e.Refused {
		if i == mostRefused {
			line("", "and %d more; moongate check lists them all", len(e.Refused)-i)
			break
		}
		line("not used", "%s", r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String returns one line for Print.
func (l *Listener) String() string {
	return fmt.Sprintf("%s, %s port %d, hostname %s: %s%s", l.Listener, l.Protocol, l.Port, l.Hostname, l.Why, inParens(l.Position))
}

// String returns one line for Print.
func (c *Certificate) String() string {
	names := "no DNS name"
	if len(c.Names) > 0 {
		names = strings.Join(c.Names, ", ")
	}
	text := fmt.Sprintf("the certificate of %s for %s, valid until %s%s", c.Secret, names, c.NotAfter.UTC().Format(time.RFC3339), inParens(c.Position))
	if c.Problem != "" {
		text += "; clients will refuse it: " + c.Problem
	}
	return text
}

// String returns one line for Print.
func (r *Rule) String() string {
	text := fmt.Sprintf("%s %s: %s%s", r.Route, r.Rule, r.Match, inParens(r.Position))
	if r.Why != "" {
		text += "; " + r.Why
	}
	return text
}

// String returns one line for Print.
func (b Backend) String() string {
	text := b.Share + " to " + b.Backend + inParens(b.Position)
	if b.Speaks != "" && b.Speaks != config.BackendProtocol_BACKEND_PROTOCOL_HTTP.Info().Cleartext {
		text += " in " + b.Speaks
	}
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
