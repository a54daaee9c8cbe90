package explain

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/table"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// ifLetPass is appended to an answer that depends on an authorization server.
const ifLetPass = ", if the authorization server lets the request pass"

// carryOut runs the rule's filters and shows its backends.
func (d *decision) carryOut() error {
	rule := d.rule.Config
	if rule.Failure == nil && d.connects() && !d.takesConnect() {
		return nil
	}
	d.ownTracing = rule.GetTraffic().GetTracing()
	if f := rule.Failure; f != nil {
		d.fail(f)
		if f.Reason == observe.ReasonPolicyInvalid.String() {
			d.Settings = policy(rule.Traffic)
		}
		return nil
	}
	d.noteRedis()
	if d.injectsFault() {
		return nil
	}
	exchange := &filter.Exchange{Request: &d.req, Scheme: d.ask.scheme, ListenerPort: uint16(d.listener.Port)}
	path, query := slices.Clone(d.req.Path), slices.Clone(d.req.Query)
	if answered, err := d.run(rule.Filters, &d.Filters, exchange); answered || err != nil {
		return err
	}
	if d.rule.Match.Preflight { // only backendRefs with a CORS filter get it
		for _, ref := range rule.BackendRefs {
			if answered, err := d.run(ref.Filters, &d.Filters, exchange); answered || err != nil {
				return err
			}
		}
		d.answerWith(observe.ReasonPreflightRefused, "")
		return nil
	}
	if refused, err := d.refusesAll(path, query); refused || err != nil {
		return err
	}
	if !slices.ContainsFunc(rule.BackendRefs, func(ref *config.BackendRef) bool { return ref.Weight > 0 }) {
		d.answerWith(observe.ReasonNoBackend, "")
		return nil
	}
	if !d.terminates() {
		if answered, err := d.filterForOnly(rule.BackendRefs, exchange); answered || err != nil {
			return err
		}
		d.forward()
	}
	d.Settings = settings(rule)
	d.shareOut(rule.BackendRefs)
	return nil
}

// filterForOnly runs the filters of the backendRef that gets all of the rule's requests, if there is one, and reports whether one of
// them has answered. A missing authorization server is shown with the backend.
func (d *decision) filterForOnly(refs []*config.BackendRef, exchange *filter.Exchange) (answered bool, err error) {
	var only *config.BackendRef
	for _, ref := range refs {
		switch {
		case ref.Weight == 0:
		case only != nil:
			return false, nil
		default:
			only = ref
		}
	}
	if only == nil || only.Failure != nil || d.authorizes(only.Filters) != nil {
		return false, nil
	}
	var shown []string
	if answered, err = d.run(only.Filters, &shown, exchange); answered { // else they are shown with the backend
		d.Filters = append(d.Filters, shown...)
	}
	return answered, err
}

// authorizes sets d.asks if one of a backendRef's filters asks an authorization server. It returns how the request fails if that
// server has no endpoints, else nil.
func (d *decision) authorizes(filters []*anypb.Any) *config.Failure {
	for _, message := range filters {
		compiled, err := table.Compile(message, filter.Env{Backend: d.upstreams.Get})
		if err != nil || compiled.Authorizes == nil {
			continue
		}
		if len(endpointsOf(compiled.Authorizes)) == 0 {
			return failureOf(observe.ReasonAuthFailed)
		}
		d.asks = true
	}
	return nil
}

// filterForListener runs the filters of the listener, and reports whether the request ends there.
func (d *decision) filterForListener() (answered bool, err error) {
	if f := d.listener.Failure; f != nil {
		d.fail(f)
		return true, nil
	}
	if field, n := http1.MaxForwards(&d.req); field != nil && n == 0 {
		reason := observe.ReasonMaxForwards
		if d.ask.method != http.MethodOptions {
			reason = observe.ReasonNotImplemented
		}
		d.answerWith(reason, "")
		return true, nil
	}
	return d.run(d.listener.Filters, &d.ListenerFilters, &filter.Exchange{Request: &d.req, Scheme: d.ask.scheme, ListenerPort: uint16(d.listener.Port)})
}

// run runs filters in order, shows them, and reports whether one has answered.
func (d *decision) run(list []*anypb.Any, shown *[]string, exchange *filter.Exchange) (answered bool, err error) {
	for _, message := range list {
		*shown = append(*shown, d.describeFilter(message))
		compiled, err := table.Compile(message, filter.Env{Backend: d.upstreams.Get})
		if err != nil {
			return false, err
		}
		if server := compiled.Authorizes; server != nil {
			if len(endpointsOf(server)) == 0 {
				d.answerWith(observe.ReasonAuthFailed, d.serverOf(server)+" has no endpoint that is ready")
				return true, nil
			}
			d.asks = true
			continue
		}
		if compiled.Request == nil {
			continue
		}
		if reply := compiled.Request(exchange); reply != nil {
			d.Answer = Answer{Status: reply.Status, Reason: reply.Reason, Text: fmt.Sprintf("%d %s", reply.Status, reply.Reason)}
			if location, ok := reply.Header.Get("Location"); ok {
				d.Answer.Text += ", Location: " + string(location)
			} else if reason, ok := observe.ReasonByWord(reply.Reason); ok {
				d.Answer.Text += ": " + reason.Description()
			}
			return true, nil
		}
	}
	return false, nil
}

// fail ends the decision with a failure, whose status may differ from that of its reason: gRPC has another one than HTTP.
func (d *decision) fail(f *config.Failure) {
	if reason, ok := observe.ReasonByWord(f.Reason); ok && d.connection() {
		d.answerWith(reason, "")
		return
	}
	d.Answer = Answer{Status: int(f.Status), Reason: f.Reason, Text: fmt.Sprintf("%d %s", f.Status, f.Reason)}
	if reason, ok := observe.ReasonByWord(f.Reason); ok {
		d.Answer.Text += ": " + reason.Description()
	}
}

func (d *decision) forward() {
	target := string(d.req.Path)
	switch {
	case d.connects():
		target = string(d.req.Host)
	case d.req.HasQuery:
		target += "?" + string(d.req.Query)
	}
	d.Forwarded = &Forward{Method: string(d.req.Method), Target: target, Host: string(d.req.Host)}
	for i := range d.req.Header.Len() {
		f := d.req.Header.At(i)
		if d.isAdded(f) {
			continue
		}
		d.Forwarded.Headers = append(d.Forwarded.Headers, string(f.Name)+": "+string(f.Value))
	}
}

// shareOut shows the backendRefs of a rule that get traffic, and the resulting answer.
func (d *decision) shareOut(refs []*config.BackendRef) {
	total := uint64(0)
	for _, ref := range refs {
		total += uint64(ref.Weight)
	}
	if total == 0 {
		d.answerWith(observe.ReasonNoBackend, "")
		return
	}
	healthy := 0
	var failure *config.Failure
	for i, ref := range refs {
		if ref.Weight == 0 {
			continue
		}
		shown, f := d.shownBackend(ref)
		shown.Share = fmt.Sprintf("%.3g%%", 100*float64(ref.Weight)/float64(total))
		if shown.Backend == "" {
			shown.Backend = fmt.Sprintf("an invalid backendRef, %s.backendRefs[%d]", d.ruleField(), i)
		}
		if f == nil {
			healthy++
		} else {
			failure = f
			shown.Problem = d.problem(f)
		}
		d.Backends = append(d.Backends, shown)
	}
	if healthy == 0 {
		d.fail(failure)
		return
	}
	except := d.Answer.Except
	d.Answer = Answer{Reason: observe.ReasonOK.String(), Text: "what the backend answers", Except: except}
	if d.connection() {
		d.Answer.Text = "what the backend sends"
	}
	if d.asks {
		d.Answer.Text += ifLetPass
	}
	if d.needsRedis {
		d.Answer.Text += ", if its global rate limits have a Redis to count in"
	}
	if except != "" {
		d.Answer.Text += ", except " + except
	}
	if failure != nil {
		d.Answer.Text += ", except for the share of the backends with a problem"
	}
}

// ruleField returns the path of the rule in its route.
func (d *decision) ruleField() string {
	index := uint32(0) // the only rule of an L4 route
	if d.rule != nil {
		index = d.rule.Config.Index
	}
	return fmt.Sprintf("spec.rules[%d]", index)
}

// shownBackend returns the backend of a backendRef, without a name if the reference is invalid, and how its share of the requests
// fails, nil if it does not.
func (d *decision) shownBackend(ref *config.BackendRef) (Backend, *config.Failure) {
	var shown Backend
	for _, f := range ref.Filters {
		shown.Filters = append(shown.Filters, d.describeFilter(f))
	}
	backend := d.upstreams.Get(ref.Backend)
	if backend == nil {
		if ref.Failure != nil {
			return shown, ref.Failure
		}
		return shown, failureOf(observe.ReasonBackendInvalid)
	}
	c := backend.Config()
	shown.Backend, shown.Position = d.objectOf(c)
	shown.Speaks = d.speaks(c)
	shown.Retries = d.retries(c.RetryBudget)
	shown.Traffic = traffic(c.Traffic)
	shown.Zones = d.zones(backend)
	shown.Upgrade = d.upgrade(backend)
	shown.Sessions = d.sessions(backend)
	shown.Endpoints = endpointsOf(backend)
	if f := d.authorizes(ref.Filters); f != nil {
		return shown, f
	}
	if key := c.GetTls().GetCertificate(); key != "" {
		shown.Speaks += ", with the client certificate of " + strings.Replace(key, "/", " ", 1)
	} else if identity := d.listener.Identity; c.Tls != nil && c.ExternalHostname == nil && identity != nil {
		if identity.Certificate == "" {
			return shown, failureOf(observe.ReasonGatewayCertificateInvalid)
		}
		shown.Speaks += ", with the client certificate of " + strings.Replace(identity.Certificate, "/", " ", 1)
	}
	if len(shown.Endpoints) == 0 {
		return shown, failureOf(observe.ReasonNoEndpoints)
	}
	return shown, nil
}

func failureOf(reason observe.Reason) *config.Failure {
	return &config.Failure{Status: uint32(reason.Status()), Reason: reason.String()}
}

// retries describes the retry budget of a backend.
func (d *decision) retries(b *config.RetryBudget) string {
	if b == nil || d.connection() {
		return ""
	}
	return fmt.Sprintf("retries: %d for each 100 requests in %s, or %d in %s, by %s", b.Percent, time.Duration(b.IntervalNanos), b.MinRetries,
		time.Duration(b.MinIntervalNanos), b.Policy)
}

// zones describes how requests to a backend are distributed among zones while its endpoints are healthy, "" if its load balancer
// ignores zones.
func (d *decision) zones(b *upstream.Backend) string {
	l := b.Config().GetTraffic().GetLoadBalancer()
	prefers := l.GetPreferLocalZone() != nil
	if !prefers && len(l.GetZoneWeights()) == 0 || l.Type == config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH {
		return ""
	}
	if prefers && d.in.Zone == "" {
		return "zones: none is preferred, because the zone of the proxy is not known (give it with --zone)"
	}
	text, rest := "", 1.
	for _, z := range b.State(time.Now()).Zones {
		if z.Share > 0 {
			text += fmt.Sprintf("%.3g%% to zone %s, ", 100*z.Share, cmp.Or(z.Zone, "unknown"))
			rest -= z.Share
		}
	}
	if rest > .0005 {
		text += fmt.Sprintf("%.3g%% to all endpoints, ", 100*rest)
	}
	text = "zones: " + strings.TrimSuffix(text, ", ")
	if prefers {
		text += "; the proxy is in zone " + d.in.Zone
	}
	return text
}

// sessions describes the session persistence of a backend, and the endpoint of the request's own session.
func (d *decision) sessions(b *upstream.Backend) string {
	if d.connection() {
		return ""
	}
	c := d.rule.Config.GetSessionPersistence()
	if c == nil {
		c = b.Config().SessionPersistence
	}
	settings, err := session.Compile(c)
	if settings == nil || err != nil { // the proxy would have rejected the backend
		return ""
	}
	text := "sessions: by cookie " + c.Name
	if c.Header {
		text = "sessions: by header field " + c.Name
	}
	if t := time.Duration(c.AbsoluteTimeoutNanos); t > 0 {
		text += ", for " + t.String() + " at most"
	}
	if t := time.Duration(c.IdleTimeoutNanos); t > 0 {
		text += ", until " + t.String() + " without a request"
	}
	text += ", by " + c.Source + "; "
	var token session.Token
	settings.ReadUnverified(&d.req.Header, &token)
	id, known := token.Endpoint(settings, b.SessionID(), time.Now())
	if !known {
		return text + "this request begins one"
	}
	for _, e := range b.Endpoints() {
		if e.SessionID() == id {
			return text + "that of this request is with " + e.String() + ", if the proxy finds that it has signed it"
		}
	}
	return text + "the endpoint of this request no longer exists"
}

// problem describes what happens to the share of a backend.
func (d *decision) problem(f *config.Failure) string {
	if d.connection() {
		return d.refusal() + ", " + f.Reason
	}
	return fmt.Sprintf("answered %d %s", f.Status, f.Reason)
}

// speaks describes the protocol of a backend's endpoints.
func (d *decision) speaks(b *config.Backend) string {
	info := b.Protocol.Info()
	if d.connection() {
		transport := "TCP"
		if d.datagrams() {
			transport = "UDP"
		}
		info.Cleartext, info.TLS = transport, transport
	}
	if d.listener.Protocol == config.Protocol_PROTOCOL_TLS_PASSTHROUGH {
		return "the client's TLS"
	}
	if b.Tls != nil {
		return info.TLS + " over TLS to " + serverNames(b.Tls)
	}
	return info.Cleartext
}

// serverNames returns the server name of a backend (SNI), the names of which its certificate must have one if these differ, and the
// TLS limits.
func serverNames(b *config.BackendTLS) string {
	names := b.SubjectAltNames
	if names == nil {
		return b.ServerName + limits(b)
	}
	return names.AskedName + ", authenticated by " + strings.Join(slices.Concat(names.Hostnames, names.Uris), " or ") + limits(b)
}

// limits describes the minimum TLS version and the cipher suites, "" for the defaults.
func limits(b *config.BackendTLS) (text string) {
	if b.MinVersion != 0 {
		text = ", by " + tls.VersionName(uint16(b.MinVersion)) + " at least"
	}
	var suites []string
	for _, suite := range b.CipherSuites {
		suites = append(suites, tls.CipherSuiteName(uint16(suite)))
	}
	if suites != nil {
		text += ", in TLS 1.2 with " + strings.Join(suites, " or ")
	}
	return text
}

// describeFilter returns the filter on one line, with the authorization server that it asks.
func (d *decision) describeFilter(packed *anypb.Any) string {
	text := filterText(packed)
	var auth config.ExternalAuth
	if packed.MessageIs(&auth) && packed.UnmarshalTo(&auth) == nil {
		if server := d.upstreams.Get(auth.Backend); server != nil {
			text += ", asks " + d.serverOf(server)
			if endpoints := endpointsOf(server); len(endpoints) > 0 {
				text += " in " + d.speaks(server.Config()) + ": " + strings.Join(endpoints, ", ")
			}
		}
	}
	return text
}

// serverOf names an authorization server or a collector.
func (d *decision) serverOf(b *upstream.Backend) string {
	object, position := d.objectOf(b.Config())
	return object + inParens(position)
}

// objectOf returns the name and the port of the object to which a Backend belongs, and the object's place in manifests.
func (d *decision) objectOf(c *config.Backend) (text, position string) {
	kind, _, _ := strings.Cut(c.Key, "/")
	name := c.Namespace + "/" + c.Name
	return fmt.Sprintf("%s %s port %d", kind, name, c.Port), d.position(kind, name)
}

// endpointsOf returns the addresses of a backend's endpoints, or a text with its external hostname.
func endpointsOf(b *upstream.Backend) (all []string) {
	if c := b.Config(); c.ExternalHostname != nil {
		return []string{fmt.Sprintf("%s:%d, at the addresses that DNS has of it", c.ExternalHostname.Name, c.Port)}
	}
	for _, e := range b.Endpoints() {
		all = append(all, e.String())
	}
	return all
}

// filterText returns the filter's message on one line.
func filterText(packed *anypb.Any) string {
	name := strings.Replace(string(packed.MessageName().Name()), "Url", "URL", 1) // as in the specification
	m, err := packed.UnmarshalNew()
	if err != nil {
		return name
	}
	if text := compact(m); text != "" {
		return name + " " + text
	}
	return name
}

// compact returns a message as JSON, "" if it cannot be encoded.
func compact(m proto.Message) string {
	text, err := protojson.Marshal(m)
	if err != nil {
		return ""
	}
	var out bytes.Buffer // because protojson's spacing differs between builds
	if json.Compact(&out, text) != nil {
		return ""
	}
	return out.String()
}

// note adds notes from the accepted condition of the policy in force for the rule. If several policies are merged, the first one
// reports for all.
func (d *decision) note() error {
	if d.rule == nil || d.connection() || d.rule.Config.GetTraffic() == nil {
		return nil
	}
	by, at := policiesOf(d.rule.Config.Traffic)[0], d.listener.Key[strings.LastIndexByte(d.listener.Key, '/')+1:]
	objects, err := show.Objects(d.in.Items, d.in.ControllerName)
	for _, o := range objects {
		if o.String() != by {
			continue
		}
		for _, n := range o.Notes() {
			_, section, ofListener := strings.Cut(n.Where, " listener ")
			if n.Condition == "Accepted=True" && (!ofListener || section == at) && !slices.Contains(d.Notes, by+": "+n.Message) {
				d.Notes = append(d.Notes, by+": "+n.Message)
			}
		}
	}
	return err
}
