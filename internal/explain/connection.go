package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/match"
)

// The schemes for connections and datagrams.
const (
	schemeTCP = "tcp"
	schemeTLS = "tls"
	schemeUDP = "udp"
)

// NewConnection returns the Question about a connection, such as tcp://example.com:5432, or tls://example.com:443, whose host is the
// server name, or about datagrams, such as udp://example.com:53. Only its destination determines its route.
func NewConnection(rawURL string) (*Question, error) {
	scheme, authority, ok := strings.Cut(rawURL, "://")
	q := &Question{url: rawURL, scheme: strings.ToLower(scheme)}
	if err := otherScheme(rawURL); err != nil {
		return nil, err
	}
	if !ok || !q.connection() || strings.ContainsAny(authority, "/?#") {
		return nil, fmt.Errorf("%q is not a connection; write it as tcp://example.com:5432 or tls://example.com:443, or udp://example.com:53 for datagrams", rawURL)
	}
	if err := q.setAuthority(authority); err != nil {
		return nil, err
	}
	if q.port == 0 {
		return nil, fmt.Errorf("%q has no port; write it as %s://example.com:5432", rawURL, q.scheme)
	}
	return q, nil
}

func (q *Question) connection() bool {
	return q.scheme == schemeTCP || q.scheme == schemeTLS || q.scheme == schemeUDP
}

// connection reports whether the question is about a connection or datagrams, and not about a request.
func (d *decision) connection() bool { return d.ask.connection() }

// datagrams reports whether the question is about datagrams.
func (d *decision) datagrams() bool { return d.ask.datagrams() }

func (q *Question) datagrams() bool { return q.scheme == schemeUDP }

// unit names what the question is about.
func (d *decision) unit() string {
	if d.datagrams() {
		return "datagram"
	}
	return "connection"
}

// refusal describes what happens to a connection or datagram without a route.
func (d *decision) refusal() string {
	if d.datagrams() {
		return "dropped"
	}
	return "reset"
}

// decideConnection does what the proxy does with a connection that it has accepted (exchange/join.go, and client/tls.go before it),
// or with a client's first datagram (datagram/session.go).
func (d *decision) decideConnection() error {
	choose := d.choosePlain
	if d.ask.scheme == schemeTLS {
		choose = d.chooseTLS
	}
	if ok, err := choose(); !ok || err != nil {
		return err
	}
	name := d.serverName()
	route, hostname, ok := d.l4Route(name)
	if !ok {
		detail := "the listener has no route"
		if name != "" {
			detail += " for server name " + strconv.Quote(name)
		}
		d.answerWith(observe.ReasonRouteNotFound, detail)
		return nil
	}
	kind, at, _ := strings.Cut(config.WholeRouteKey(route.Key), "/")
	d.Rule = &Rule{Route: kind + " " + at, Rule: "rules[0]", Match: "every " + d.unit(), Position: d.position(kind, at), Matched: true}
	if hostname != "" {
		d.Rule.Match = "server name " + hostname
	}
	d.Settings = policy(route.Traffic)
	if d.listener.Protocol == config.Protocol_PROTOCOL_TLS_PASSTHROUGH {
		d.shareOut(route.PassthroughBackendRefs)
	} else {
		d.shareOut(route.BackendRefs)
	}
	return nil
}

// choosePlain finds the listener of a connection without TLS, or of datagrams; it returns false if the decision has ended.
func (d *decision) choosePlain() (bool, error) {
	wanted := config.Protocol_PROTOCOL_TCP
	if d.datagrams() {
		wanted = config.Protocol_PROTOCOL_UDP
	}
	hosts := d.listenersOfPort(wanted)
	if hosts == nil {
		return false, nil
	}
	l, ok := hosts.Find(nil)
	if !ok {
		d.answerWith(observe.ReasonRouteNotFound, "")
		return false, nil
	}
	d.choose(l, "it takes every "+d.unit()+" to its port")
	return true, nil
}

// chooseTLS finds the listener of a server name; it returns false if the decision has ended.
func (d *decision) chooseTLS() (bool, error) {
	hosts := d.listenersOfPort(config.Protocol_PROTOCOL_TLS)
	if hosts == nil {
		return false, nil
	}
	l, err := d.handshake(hosts)
	if err != nil || l == nil {
		return false, err
	}
	if l.Protocol == config.Protocol_PROTOCOL_HTTPS {
		d.wrongProtocol(l)
		return false, nil
	}
	d.passOver(hosts, l, d.sni())
	d.choose(l, fmt.Sprintf("the most specific hostname for server name %q", d.sni()))
	return true, nil
}

func (d *decision) choose(l *config.Listener, why string) {
	d.listener = l
	shown := d.shownListener(l, why)
	d.Listener = &shown
}

// serverName returns that of the connection, "" without TLS.
func (d *decision) serverName() string {
	if d.ask.scheme != schemeTLS {
		return ""
	}
	return d.sni()
}

// l4Route returns the L4 route that the listener selects for a server name, and the matching hostname.
func (d *decision) l4Route(serverName string) (route *config.L4Route, hostname string, ok bool) {
	type attached struct {
		route    *config.L4Route
		hostname string
	}
	var hosts *match.Hosts[attached]
	for _, r := range d.in.Resources {
		for _, a := range r.GetL4Route().GetAttachments() {
			if a.Listener != d.listener.Key {
				continue
			}
			for _, h := range a.Hostnames {
				hosts = hosts.With(h.Effective, attached{r.GetL4Route(), h.Effective})
			}
		}
	}
	found, ok := hosts.Find([]byte(serverName))
	return found.route, found.hostname, ok
}
