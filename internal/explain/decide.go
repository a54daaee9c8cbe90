package explain

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// maxRunnersUp is the maximum number of rules that did not win that are shown.
const maxRunnersUp = 3

// Question is the request to be explained.
type Question struct {
	method, url string
	scheme      string
	serverName  string // host of the URL, without port
	address     netip.Addr
	port        uint32
	head        []byte // as a client would send it
}

// IsFor reports whether the port of the question is that of the listener, regardless of its addresses.
func (q *Question) IsFor(l *config.Listener) bool {
	return l.Port == q.port && q.datagrams() == (l.Protocol == config.Protocol_PROTOCOL_UDP)
}

// NewQuestion returns the Question about a request. The target is kept as typed, because its normalization is part of what is
// explained.
func NewQuestion(method, rawURL string, headers []string) (*Question, error) {
	q := &Question{method: method, url: rawURL, port: 80}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	q.scheme = strings.ToLower(scheme)
	if !ok || q.scheme != "http" && q.scheme != "https" {
		if err := otherScheme(rawURL); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%q is not a URL of the gateway; write it as http://example.com:8080/path", rawURL)
	}
	if q.scheme == "https" {
		q.port = 443
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority, target := rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, target = rest[:i], rest[i:]
		if target[0] == '?' {
			target = "/" + target
		}
	}
	if err := q.setAuthority(authority); err != nil {
		return nil, err
	}
	if method == http.MethodConnect { // a CONNECT has no path
		if target = authority; strings.LastIndexByte(authority, ':') <= strings.LastIndexByte(authority, ']') {
			target += ":" + strconv.Itoa(int(q.port))
		}
		authority = target
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\n", method, target)
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(strings.ToLower(h), "host:") }) {
		fmt.Fprintf(&head, "Host: %s\r\n", authority)
	}
	for _, h := range headers {
		if !strings.Contains(h, ":") {
			return nil, fmt.Errorf("-H %q is not a header field; write it as 'Name: value'", h)
		}
		head.WriteString(h + "\r\n")
	}
	head.WriteString("\r\n")
	q.head = head.Bytes()
	return q, nil
}

// requestSchemes are schemes that other programs use for requests, and those that a Question has instead.
var requestSchemes = map[string]string{"ws": "http", "wss": "https", "grpc": "http", "grpcs": "https", "h2c": "http"}

// otherScheme returns an error that names the scheme to write if that of a URL is one of requestSchemes, else nil.
func otherScheme(rawURL string) error {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	if instead := requestSchemes[strings.ToLower(scheme)]; instead != "" {
		return fmt.Errorf("%q is a request, and those have http:// or https:// here; write it as %s://%s", rawURL, instead, rest)
	}
	return nil
}

// setAuthority sets the host of the URL and, if there is one, the port.
func (q *Question) setAuthority(authority string) error {
	q.serverName = strings.ToLower(authority)
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		port, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q in the URL is not a port; write a number from 1 to 65535", authority[i+1:])
		}
		q.serverName, q.port = strings.ToLower(authority[:i]), uint32(port)
	}
	q.serverName = strings.TrimSuffix(strings.Trim(q.serverName, "[]"), ".") // clients send it without the dot (RFC 6066 section 3)
	if q.serverName == "" {
		return fmt.Errorf("%q has no host; write it as %s://example.com:8080", q.url, q.scheme)
	}
	q.address, _ = netip.ParseAddr(q.serverName)
	return nil
}

// decision is an Explanation under construction.
type decision struct {
	Explanation
	in  World
	ask *Question

	req       message.Request
	head      http1.RequestHead
	listener  *config.Listener
	rule      *match.Rule[struct{}]
	upstreams *upstream.Set
	// asks is set if a filter asks an authorization server, which is assumed to allow the request.
	asks bool
	// ownTracing are the rule's settings for the request's span, nil if there are none or no rule is reached.
	ownTracing *config.RuleTracing
	// arrived is set once the request has reached the point where its span begins.
	arrived bool
	// added are the values of fields that the gateway adds to each request.
	added [][]byte
	// needsRedis is set if the rule has global rate limits, and it is not known whether there is a Redis server for them.
	needsRedis bool
}

// Explain decides the request by the proxy's own tables.
func Explain(in World, ask *Question) (*Explanation, error) {
	d := &decision{in: in, ask: ask, upstreams: upstream.NewSet(upstream.Options{NoHealthChecks: true})}
	defer d.upstreams.Close()
	d.upstreams.SetZone(in.Zone)
	if err := d.upstreams.Apply(in.Resources, nil); err != nil {
		return nil, err
	}
	d.upstreams.UpdateWeights(time.Now())
	d.Request = Request{Method: ask.method, URL: ask.url}
	d.Refused = in.Refused
	if err := d.decide(); err != nil {
		return nil, err
	}
	if d.asks && d.Answer.Reason != observe.ReasonOK.String() { // otherwise shareOut has appended it
		d.Answer.Text += ifLetPass
	}
	if d.arrived {
		d.Settings = append(d.Settings, d.tracing(d.ownTracing)...)
	}
	if err := d.note(); err != nil {
		return nil, err
	}
	return &d.Explanation, d.complain()
}

func (d *decision) decide() error {
	if d.connection() {
		return d.decideConnection()
	}
	if _, err := http1.ParseRequest(d.ask.head, &d.req, &d.head, nil); err != nil {
		d.refuse(err)
		return nil
	}
	if d.connects() {
		d.req.Path = []byte("/") // in the form for matches and filters
	}
	d.Request.Host, d.Request.Path = string(d.req.MatchHost), string(d.req.Path)
	if ok, err := d.chooseListener(); !ok || err != nil {
		return err
	}
	if d.arrive() {
		return nil
	}
	if answered, err := d.filterForListener(); answered || err != nil {
		return err
	}
	if err := d.chooseRule(); err != nil || d.rule == nil {
		return err
	}
	return d.carryOut()
}

// answerWith ends the decision with a reason of the proxy.
func (d *decision) answerWith(reason observe.Reason, detail string) {
	text := fmt.Sprintf("%s: %s", reason, reason.Description())
	if detail != "" {
		text += "; " + detail
	}
	if d.connection() {
		d.resetWith(reason, text)
		return
	}
	d.Answer = Answer{Status: reason.Status(), Reason: reason.String(), Text: fmt.Sprintf("%d %s", reason.Status(), text)}
}

// resetWith ends the decision with a reset of the connection.
func (d *decision) resetWith(reason observe.Reason, text string) {
	d.Answer = Answer{Reason: reason.String(), Text: fmt.Sprintf("the %s is %s, %s", d.unit(), d.refusal(), text)}
}

// refuse ends the decision for a header section that the parser rejects.
func (d *decision) refuse(err error) {
	reason := observe.ReasonBadRequest
	var bad *http1.Error
	if errors.As(err, &bad) {
		for _, known := range observe.Reasons() {
			if known.Source == observe.SourceClient && known.Status == bad.Status && reason.Status() != bad.Status {
				reason = known.Reason
			}
		}
		d.answerWith(reason, bad.Detail)
		return
	}
	d.answerWith(reason, err.Error())
}

// listenersOfPort returns the listeners of the port with the protocol, or, if that uses TLS, of all protocols that do; nil ends the
// decision.
func (d *decision) listenersOfPort(wanted config.Protocol) *match.Hosts[*config.Listener] {
	var hosts *match.Hosts[*config.Listener]
	var others []string
	var there []string // listeners of the port with the other transport protocol
	for _, r := range d.in.Resources {
		l := r.GetListener()
		if l == nil {
			continue
		}
		switch {
		case d.ask.IsFor(l) && d.listensOn(l):
		case l.Port == d.ask.port && d.listensOn(l):
			there = append(there, l.Key)
			continue
		default:
			others = append(others, place(l))
			continue
		}
		if hosts == nil {
			hosts = &match.Hosts[*config.Listener]{}
		}
		hosts = hosts.With(l.Hostname, l)
	}
	if hosts == nil {
		port := fmt.Sprintf("port %d", d.ask.port)
		if d.ask.address.IsValid() {
			port += " of " + d.ask.address.String()
		}
		text := "nothing listens on " + port
		switch {
		case len(there) > 0:
			asked, other := "TCP connections", "UDP"
			if d.datagrams() {
				asked, other = "UDP datagrams", "TCP"
			}
			which := "its listener " + there[0] + " is"
			if len(there) > 1 {
				which = "its listeners " + strings.Join(there, ", ") + " are"
			}
			text = fmt.Sprintf("%s takes no %s: %s for %s", port, asked, which, other)
		case len(others) > 0:
			text += "; there is " + strings.Join(others, ", ")
		}
		d.Answer = Answer{Reason: "connection_refused", Text: text}
		return nil
	}
	for _, l := range hosts.All() {
		if l.Protocol != wanted && !(beginsWithTLS(l.Protocol) && beginsWithTLS(wanted)) {
			text := fmt.Sprintf("port %d speaks %s (listener %s), not %s", l.Port, protocolName(l), l.Key, strings.ToUpper(d.ask.scheme))
			if wanted == config.Protocol_PROTOCOL_HTTP && beginsWithTLS(l.Protocol) {
				d.answerWith(observe.ReasonHTTPOnTLSPort, text)
			} else {
				d.Answer = Answer{Reason: "wrong_protocol", Text: text}
			}
			return nil
		}
	}
	return hosts
}

func beginsWithTLS(p config.Protocol) bool {
	return p == config.Protocol_PROTOCOL_HTTPS || p == config.Protocol_PROTOCOL_TLS || p == config.Protocol_PROTOCOL_TLS_PASSTHROUGH
}

// wrongProtocol ends the decision because the server name has selected a listener of another protocol.
func (d *decision) wrongProtocol(l *config.Listener) {
	d.Answer = Answer{Reason: "wrong_protocol", Text: fmt.Sprintf("server name %q on port %d is of listener %s, which speaks %s, not %s",
		d.sni(), l.Port, l.Key, protocolName(l), strings.ToUpper(d.ask.scheme))}
}

// chooseListener selects the listener by address, handshake and Host; it returns false if the decision has ended.
func (d *decision) chooseListener() (bool, error) {
	https := d.ask.scheme == "https"
	wanted := config.Protocol_PROTOCOL_HTTP
	if https {
		wanted = config.Protocol_PROTOCOL_HTTPS
	}
	hosts := d.listenersOfPort(wanted)
	if hosts == nil {
		return false, nil
	}
	listener, ok := hosts.Find(d.req.MatchHost)
	if https {
		shown, err := d.handshake(hosts)
		if err != nil || shown == nil {
			return false, err
		}
		if shown.Protocol != config.Protocol_PROTOCOL_HTTPS {
			d.wrongProtocol(shown)
			return false, nil
		}
		if ok && shown != listener {
			l := d.shownListener(shown, "chosen by server name "+strconv.Quote(d.sni()))
			d.Listener = &l
			d.answerWith(observe.ReasonMisdirected, "")
			return false, nil
		}
	}
	d.passOver(hosts, listener, string(d.req.MatchHost))
	if !ok {
		d.answerWith(observe.ReasonRouteNotFound, "no listener of the port has host "+string(d.req.MatchHost))
		return false, nil
	}
	d.choose(listener, "the most specific hostname for "+string(d.req.MatchHost))
	return true, nil
}

// passOver shows the listeners other than the selected one, which may be nil.
func (d *decision) passOver(hosts *match.Hosts[*config.Listener], chosen *config.Listener, host string) {
	for hostname, l := range hosts.All() {
		if l == chosen {
			continue
		}
		why := "a more specific hostname fits"
		if !hostnameFits(hostname, host) {
			why = "its hostname does not fit " + host
		}
		d.PassedOver = append(d.PassedOver, d.shownListener(l, why))
	}
}

// place returns the addresses of a listener in text.
func place(l *config.Listener) string {
	if len(l.Addresses) == 0 {
		return fmt.Sprintf("port %d (%s)", l.Port, l.Key)
	}
	var at []string
	for _, a := range l.Addresses {
		at = append(at, net.JoinHostPort(a, strconv.Itoa(int(l.Port))))
	}
	return fmt.Sprintf("%s (%s)", strings.Join(at, " and "), l.Key)
}

func (d *decision) listensOn(l *config.Listener) bool {
	return !d.ask.address.IsValid() || len(l.Addresses) == 0 ||
		slices.ContainsFunc(l.Addresses, func(a string) bool { ip, _ := netip.ParseAddr(a); return ip == d.ask.address })
}

func hostnameFits(hostname, host string) bool {
	suffix, wildcard := strings.CutPrefix(hostname, "*")
	return hostname == "" || hostname == host || wildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

func protocolName(l *config.Listener) string {
	if l.Protocol == config.Protocol_PROTOCOL_TLS_PASSTHROUGH {
		return "TLS (Passthrough)"
	}
	return strings.TrimPrefix(l.Protocol.String(), "PROTOCOL_")
}

func (d *decision) shownListener(l *config.Listener, why string) Listener {
	hostname := l.Hostname
	if hostname == "" {
		hostname = "*"
	}
	return Listener{Listener: l.Key, Hostname: hostname, Port: l.Port, Protocol: protocolName(l),
		Position: d.owner(l), Why: why}
}

// owner returns the place of the object that contains a listener.
func (d *decision) owner(l *config.Listener) string { return d.position(ownerOf(l)) }

// ownerOf returns the kind and the name ("<namespace>/<name>") of the object that contains a listener.
func ownerOf(l *config.Listener) (kind, name string) {
	if l.ListenerSet == "" {
		return "Gateway", l.Gateway
	}
	if kind, name, found := strings.Cut(l.ListenerSet, "/"); found && strings.Contains(name, "/") { // of another kind
		return kind, name
	}
	return "ListenerSet", l.ListenerSet
}

// position returns the place of an object ("<namespace>/<name>") in the manifests.
func (d *decision) position(kind, name string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return d.in.Place(kind, namespace, name)
}

// chooseRule matches the request against the listener's routes.
func (d *decision) chooseRule() error {
	edit := new(match.Table[struct{}]).Edit()
	for _, r := range d.in.Resources {
		for _, a := range r.GetRoute().GetAttachments() {
			if a.Listener != d.listener.Key {
				continue
			}
			compiled, err := match.Compile(r.GetRoute(), func(*config.Rule) struct{} { return struct{}{} })
			if err != nil {
				return err
			}
			edit.Add(compiled, a.Hostnames)
		}
	}
	routes := edit.Table()
	var limit error
	d.rule, limit = routes.Lookup(&d.req)
	if limit != nil {
		d.answerWith(observe.ReasonMatchLimit, "")
		return nil
	}
	candidates := routes.Explain(&d.req)
	slices.SortStableFunc(candidates, func(a, b match.Candidate[struct{}]) int { return cmp.Compare(distance(a), distance(b)) })
	for _, c := range candidates {
		shown := d.shownRule(c)
		if c.Matched && c.Why == "" {
			d.Rule = &shown
		} else if len(d.RunnersUp) == 0 || len(d.RunnersUp) < maxRunnersUp && (c.Matched || d.rule == nil) {
			d.RunnersUp = append(d.RunnersUp, shown)
		}
	}
	if d.rule == nil {
		detail := "no match of the listener's routes fits"
		if len(candidates) == 0 {
			detail = "the listener has no route for host " + d.Request.Host
		}
		d.answerWith(observe.ReasonRouteNotFound, detail)
	}
	return nil
}

// distance orders candidates by how close they came: those that match too, those whose path matches, the rest.
func distance(c match.Candidate[struct{}]) int {
	switch {
	case c.Matched:
		return 0
	case !strings.HasPrefix(c.Why, "path "):
		return 1
	}
	return 2
}

func (d *decision) shownRule(c match.Candidate[struct{}]) Rule {
	route := c.Rule.Route
	rule := fmt.Sprintf("rules[%d]", c.Rule.Config.Index)
	if name := c.Rule.Config.Name; name != "" {
		rule += " (" + name + ")"
	}
	kind, name, _ := strings.Cut(config.WholeRouteKey(route.Key), "/")
	return Rule{Route: kind + " " + name, Rule: rule, Match: describeMatch(c), Position: d.position(kind, name),
		Matched: c.Matched, Why: c.Why}
}

func describeMatch(c match.Candidate[struct{}]) string {
	m := c.Rule.Match
	var parts []string
	if c.Effective != "" {
		parts = append(parts, "host "+c.Effective)
	}
	switch m.Path.GetType() {
	case config.PathMatchType_PATH_MATCH_TYPE_EXACT:
		parts = append(parts, "path "+m.Path.Value)
	case config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION:
		parts = append(parts, "path like "+m.Path.Value)
	default:
		parts = append(parts, "path prefix "+cmp.Or(m.Path.GetValue(), "/"))
	}
	if m.Method != "" {
		parts = append(parts, "method "+m.Method)
	}
	parts = append(parts, describeValues("header", m.Headers)...)
	parts = append(parts, describeValues("query", m.QueryParams)...)
	return strings.Join(parts, ", ")
}

func describeValues(what string, list []*config.ValueMatch) []string {
	var parts []string
	for _, v := range list {
		like := "="
		if v.RegularExpression {
			like = " like "
		}
		parts = append(parts, what+" "+v.Name+like+v.Value)
	}
	return parts
}
