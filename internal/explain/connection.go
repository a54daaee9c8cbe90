package explain

import (
	"fmt"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
)

const schemeTCP = "tcp"

// NewConnection reads what explain was given of a connection, as tcp://example.com:5432. Nothing but its destination decides which way it takes.
func NewConnection(rawURL string) (*Question, error) {
	q := &Question{url: rawURL, scheme: schemeTCP}
	scheme, authority, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ToLower(scheme) != schemeTCP || strings.ContainsAny(authority, "/?#") {
		return nil, fmt.Errorf("%q is not a connection; write it as tcp://example.com:5432", rawURL)
	}
	if err := q.setAuthority(authority); err != nil {
		return nil, err
	}
	if q.port == 0 {
		return nil, fmt.Errorf("%q has no port; write it as tcp://example.com:5432", rawURL)
	}
	return q, nil
}

// connection reports whether the question is about a connection, and not about a request.
func (d *decision) connection() bool { return d.ask.scheme == schemeTCP }

// decideConnection does what the proxy does with a connection that it has accepted (exchange/join.go).
func (d *decision) decideConnection() {
	hosts := d.listenersOfPort(config.Protocol_PROTOCOL_TCP)
	if hosts == nil {
		return
	}
	l, ok := hosts.Find(nil)
	if !ok {
		d.answerWith(observe.ReasonRouteNotFound, "")
		return
	}
	d.listener = l
	shown := d.shownListener(l, "it takes every connection to its port")
	d.Listener = &shown
	route := d.l4Route()
	if route == nil {
		d.answerWith(observe.ReasonRouteNotFound, "the listener has no route")
		return
	}
	kind, name, _ := strings.Cut(route.Key, "/")
	d.Rule = &Rule{Route: kind + " " + name, Rule: "rules[0]", Match: "every connection", Position: d.position(kind, name), Matched: true}
	d.shareOut(route.BackendRefs)
}

// l4Route returns the layer-4 route that is attached to the listener, or nil.
func (d *decision) l4Route() *config.L4Route {
	for _, r := range d.in.Resources {
		for _, a := range r.GetL4Route().GetAttachments() {
			if a.Listener == d.listener.Key {
				return r.GetL4Route()
			}
		}
	}
	return nil
}
