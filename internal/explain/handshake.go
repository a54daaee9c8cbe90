package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// sni returns the server name that a client sends: none if the URL contains an IP address (RFC 6066 section 3).
func (d *decision) sni() string {
	if d.ask.address.IsValid() {
		return ""
	}
	return d.ask.serverName
}

// handshake decides the TLS handshake, and returns the listener that the server name selects, or nil if the handshake fails. If TLS
// is passed through, the backend decides whether it fails.
func (d *decision) handshake(hosts *match.Hosts[*config.Listener]) (*config.Listener, error) {
	name := d.sni()
	l, ok := hosts.Find([]byte(name))
	switch {
	case ok && l.Protocol == config.Protocol_PROTOCOL_TLS_PASSTHROUGH:
		return l, nil
	case !ok && passesOn(hosts):
		d.resetWith(observe.ReasonRouteNotFound, fmt.Sprintf("%s: no listener of the port has server name %q", observe.ReasonRouteNotFound, name))
		return nil, nil
	case !ok:
		d.failHandshake("no listener of port %d has server name %q", d.ask.port, name)
		return nil, nil
	}
	certs, err := d.certificates(l)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		shown := d.shownListener(l, fmt.Sprintf("chosen by server name %q", name))
		d.Listener = &shown
		d.failHandshake("listener %s has no certificate", l.Key)
		if slices.ContainsFunc(d.in.Resources, func(r *config.Resource) bool {
			return r.Unread() && slices.Contains(l.ServerCertificates(), r.GetCertificate().GetKey())
		}) {
			d.failHandshake("the Secrets of listener %s cannot be read, and only its proxies know whether they have its certificates from before", l.Key)
		}
		if v := l.ClientValidation; v != nil && len(v.Authorities) == 0 {
			d.failHandshake("listener %s has nothing to verify clients by", l.Key)
		}
		return nil, nil
	}
	d.Demands = demands(l.ClientValidation)
	var none *tls.Listener
	d.showCertificate(none.Update(l.Key, certs, nil, nil, nil, nil).Presented(name))
	return l, nil
}

// passesOn reports whether one of the listeners passes TLS through.
func passesOn(hosts *match.Hosts[*config.Listener]) bool {
	for _, l := range hosts.All() {
		if l.Protocol == config.Protocol_PROTOCOL_TLS_PASSTHROUGH {
			return true
		}
	}
	return false
}

// demands describes the required client certificate.
func demands(v *config.ClientValidation) string {
	switch {
	case v == nil:
		return ""
	case v.Optional:
		return "nothing: a certificate of the client is asked for, and every client is served"
	}
	return "a certificate of the client, without which the TLS handshake fails"
}

func (d *decision) failHandshake(format string, args ...any) {
	d.Answer = Answer{Reason: observe.ReasonTLSHandshakeFailed.String(), Text: "the TLS handshake fails: " + fmt.Sprintf(format, args...)}
}

// certificates returns those of a listener, in the order of certificateRefs.
func (d *decision) certificates(l *config.Listener) ([]*tls.Certificate, error) {
	byKey := map[string]*config.Certificate{}
	for _, r := range d.in.Resources {
		if c := r.GetCertificate(); c != nil && !r.Unread() {
			byKey[c.Key] = c
		}
	}
	var certs []*tls.Certificate
	for _, key := range l.ServerCertificates() {
		if byKey[key] == nil {
			continue
		}
		c, err := tls.Parse(byKey[key])
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

func (d *decision) showCertificate(c *tls.Certificate) {
	kind, name, _ := strings.Cut(c.Key, "/")
	shown := &Certificate{Secret: kind + " " + name, Names: c.Names, NotAfter: c.NotAfter, Position: d.position(kind, name)}
	if shown.Problem = c.Unfit(time.Now()); shown.Problem == "" && !c.Covers(d.ask.serverName) {
		shown.Problem = "it is not for " + d.ask.serverName
	}
	d.Certificate = shown
}
