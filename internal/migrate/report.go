package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// Outcome is the outcome of an annotation or a field.
type Outcome string

// The outcomes.
const (
	Translated    Outcome = "translated"     // requests are answered as before
	Approximated  Outcome = "approximated"   // something differs, as the entry reports
	NotTranslated Outcome = "not translated" // the output contains nothing of it
)

// Entry is one line of the report.
type Entry struct {
	manifest.Position
	// Object is "Ingress namespace/name", or "all" if it applies to every Ingress.
	Object string
	// Field is an annotation, or a path such as spec.rules[0].
	Field   string
	Outcome Outcome
	// Message is what it became, or what differs.
	Message string
	// Remedy is what to do; empty if nothing is necessary.
	Remedy string
}

// String returns "file:line: object: field: outcome: message; remedy".
func (e Entry) String() string {
	var b strings.Builder
	for _, part := range []string{e.Position.String(), e.Object, e.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(string(e.Outcome))
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return printable(b.String())
}

// Report contains an entry for everything in the input.
type Report []Entry

// Count returns the number of entries with an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, e := range r {
		if e.Outcome == o {
			n++
		}
	}
	return n
}

// Write prints the entries and a summary: first those that need attention, and of these first those about single objects.
func (r Report) Write(w io.Writer) error {
	for _, o := range []Outcome{NotTranslated, Approximated, Translated} {
		for _, all := range []bool{false, true} {
			for _, e := range r {
				if e.Outcome != o || (e.Object == "all") != all {
					continue
				}
				if _, err := fmt.Fprintln(w, e); err != nil {
					return err
				}
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d translated, %d approximated, %d not translated\n", r.Count(Translated), r.Count(Approximated), r.Count(NotTranslated))
	return err
}

// sorted orders the entries by file, line, object and field, and removes duplicates.
func (r Report) sorted() Report {
	slices.SortStableFunc(r, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(r)
}

// The fields of entries that are omitted if the settings of the controller are known.
const (
	configEntry      = "ConfigMap of ingress-nginx"
	argumentsEntry   = "arguments of ingress-nginx"
	certificateEntry = "default certificate"
)

// everywhere are the differences that apply to every Ingress. They are part of each report.
var everywhere = Report{
	{Object: "all", Field: "paths", Outcome: Approximated, Message: "nginx decodes all escapes and merges repeated slashes before it matches a path; Moongate decodes unreserved characters only, keeps %2F and repeated slashes, and forwards the path in that form, where nginx forwards what the client wrote. A request for //admin or /admin%2Fx is none for the path /admin, then, nor under what protects that, and goes where / leads",
		Remedy: "check clients that send such paths; where a path is protected and a wider one leads to the same backend, protect that one, too, or have the backend refuse such paths"},
	{Object: "all", Field: "unknown paths and hosts", Outcome: Approximated, Message: "both answer 404, but nginx applies the annotations of a host's first Ingress, such as authentication and CORS, before that, and sends Strict-Transport-Security by HTTPS",
		Remedy: "nothing, unless clients depend on it"},
	{Object: "all", Field: "health checks", Outcome: Approximated, Message: "for hosts without an Ingress nginx answers /healthz and what begins with it with 200, as health checks of load balancers expect; Moongate answers 404",
		Remedy: "have them ask a path of a backend, open a connection only, or ask /readyz of the proxy's admin address"},
	{Object: "all", Field: "X-Accel", Outcome: Approximated, Message: "X-Accel-Redirect, X-Accel-Buffering and other X-Accel fields of responses are orders to nginx; Moongate obeys none, and passes them on to the client",
		Remedy: "have backends that send X-Accel-Redirect send the content itself"},
	{Object: "all", Field: "TRACE", Outcome: Approximated, Message: "requests with method TRACE go to backends, nginx answers them 405", Remedy: "have backends refuse the method, as most do"},
	{Object: "all", Field: "request bodies", Outcome: Approximated, Message: "nginx reads the body of a request before it asks the backend, and says its length there; Moongate streams it, in chunks where the client sends chunks",
		Remedy: "set requestBuffer in a BackendTrafficPolicy where backends need bodies whole or their length"},
	{Object: "all", Field: "server names", Outcome: Approximated, Message: "nginx answers by Host alone, whatever server name the client's TLS asked for; Moongate answers 421 where a request on the connection belongs to another listener",
		Remedy: "nothing for browsers, which repeat such a request; correct clients that name one host in TLS and another in Host"},
	{Object: "all", Field: certificateEntry, Outcome: Approximated, Message: "a host without a certificate of its own is served by HTTPS too, in nginx, with a certificate that no client trusts, or that of --default-ssl-certificate; Moongate ends the handshake", Remedy: "give --default-ssl-certificate where the controller has one, or add a listener with a certificate where clients need an answer"},
	{Object: "all", Field: "headers to backends", Outcome: Approximated,
		Message: "backends get X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and X-Request-ID, but no X-Real-IP, X-Scheme, X-Forwarded-Port, X-Forwarded-Scheme, X-Original-Forwarded-For and X-Original-Forwarded-Host. X-Request-ID is a new one for each request, where nginx keeps that of a client. What a client sends as X-Scheme, X-Original-Forwarded-For, X-Original-Forwarded-Host or Proxy reaches them, which nginx replaces or drops; Forwarded does not, which nginx passes on",
		Remedy:  "have backends read the four, or set and remove others with a RequestHeaderModifier; to keep the X-Request-ID of clients, set requestIDs: preserve in GatewayParameters, or --request-ids preserve of moongate run (docs/tasks/headers.md)"},
	{Object: "all", Field: "headers with underscores", Outcome: Approximated, Message: "nginx drops header fields of requests whose names have underscores or other unusual characters; Moongate forwards them, except those that resemble a field which it sets",
		Remedy: "remove those that backends must not believe with a RequestHeaderModifier"},
	{Object: "all", Field: "Server", Outcome: Approximated, Message: "nginx removes the field Server of responses; Moongate passes on what the backend says", Remedy: "remove it with a ResponseHeaderModifier where it tells too much"},
	{Object: "all", Field: "limits on heads", Outcome: Approximated, Message: "nginx takes lines of 8 KiB, 32 KiB in all, and answers 400 or 414; Moongate takes 32 KiB and 128 fields, and answers 431 or 414", Remedy: "nothing, unless clients send such heads"},
	{Object: "all", Field: "Services", Outcome: Approximated, Message: "where a Service does not exist nginx answers 503 and Moongate 500", Remedy: "run moongate check with the Services; for those of type ExternalName see docs/tasks/external-hosts.md"},
	{Object: "all", Field: "timeouts and retries", Outcome: Approximated, Message: "nginx gives up with 504 after 60 s without a byte from the backend and repeats a request on errors; Moongate has no such limit unless proxy-read-timeout is set, and repeats fewer requests",
		Remedy: "set timeout and retry in a BackendTrafficPolicy"},
	{Object: "all", Field: "error pages", Outcome: Approximated, Message: "bodies of answers that the gateway makes itself are plain text, not nginx's HTML", Remedy: "use responseOverride of a BackendTrafficPolicy for pages of your own"},
	{Object: "all", Field: configEntry, Outcome: NotTranslated, Message: "defaults are assumed; the controller's ConfigMap is not in the input", Remedy: "give the ConfigMap as input, too"},
	{Object: "all", Field: argumentsEntry, Outcome: NotTranslated, Message: "defaults are assumed; no Deployment or DaemonSet of the input says what the controller's arguments are", Remedy: "give it as input, too, or compare its arguments with the defaults, such as --watch-namespace, --default-ssl-certificate and --enable-ssl-passthrough"},
}
