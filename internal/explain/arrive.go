package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Placeholders for values of fields that are not known before there is a request.
var (
	clientAddress = []byte("(the client's address)")
	newRequestID  = []byte("(an id of the gateway's)")
)

// arrive does what the gateway does with a header section before it selects a rule, and reports whether the request ends there.
func (d *decision) arrive() (answered bool) {
	d.setForwarded()
	if most := d.listener.MaxRequestBodyBytes; most > 0 && d.head.ContentLength > most {
		d.answerWith(observe.ReasonBodyTooLarge, fmt.Sprintf("the listener takes %d bytes", most))
		return true
	}
	n := d.req.Header.Len()
	d.req.Header.RemoveIf(message.ClaimsRequestID)
	if d.req.Header.Len() < n {
		d.Notes = append(d.Notes, "X-Request-Id: replaced, unless the Gateway's parameters have requestIDs: preserve, or the gateway runs with --request-ids preserve")
	}
	d.add("X-Request-Id", newRequestID)
	if message.Passes(&d.req.Header) >= message.MaxPasses {
		d.answerWith(observe.ReasonLoopDetected, "")
		return true
	}
	message.AddPass(&d.req.Header)
	d.added = append(d.added, d.req.Header.At(d.req.Header.Len()-1).Value)
	d.arrived = true
	return false
}

// setForwarded sets the fields about the origin of the request. If the listener trusts proxies, the request is assumed to come from
// one of them.
func (d *decision) setForwarded() {
	h := &d.req.Header
	drops, why := message.ClaimsProvenance, "the Gateway's parameters name no trustedProxies"
	if len(d.listener.TrustedProxies) > 0 {
		drops, why = message.DisguisesProvenance, "proxies write these names with hyphens"
	}
	if dropped := names(h, drops); dropped != "" {
		d.Notes = append(d.Notes, dropped+": dropped, because "+why)
		h.RemoveIf(drops)
	}
	if kept := names(h, message.ClaimsProvenance); kept != "" {
		d.keepForwardedFor()
		d.Notes = append(d.Notes, kept+": used only if one of the trustedProxies of the Gateway's parameters has sent it")
	}
	for _, f := range []struct {
		name  string
		value []byte
	}{{"X-Forwarded-For", clientAddress}, {"X-Forwarded-Proto", []byte(d.ask.scheme)}, {"X-Forwarded-Host", slices.Clone(d.req.Host)}} {
		if _, said := h.Get(strings.ToLower(f.name)); !said {
			d.add(f.name, f.value)
		}
	}
}

// names returns the names of the fields for which of returns true.
func names(h *message.Fields, of func(*message.Field) bool) string {
	var all []string
	for i := range h.Len() {
		if f := h.At(i); of(f) {
			all = append(all, string(f.Name))
		}
	}
	return strings.Join(all, ", ")
}

// keepForwardedFor joins the lines of X-Forwarded-For, and appends the proxy that has sent them.
func (d *decision) keepForwardedFor() {
	h := &d.req.Header
	var way []byte
	for i := range h.Len() {
		if f := h.At(i); message.EqualFold(f.Name, "x-forwarded-for") && len(f.Value) > 0 {
			way = append(append(way, f.Value...), ", "...)
		}
	}
	if way == nil {
		return
	}
	h.RemoveIf(func(f *message.Field) bool { return message.EqualFold(f.Name, "x-forwarded-for") })
	h.Add([]byte("X-Forwarded-For"), append(way, clientAddress...))
}

// add adds a field that the gateway sets.
func (d *decision) add(name string, value []byte) {
	d.req.Header.Add([]byte(name), value)
	d.added = append(d.added, value)
}

// isAdded reports whether a field is one that the gateway adds to each request.
func (d *decision) isAdded(f *message.Field) bool {
	return len(f.Value) > 0 && slices.ContainsFunc(d.added, func(v []byte) bool { return len(v) > 0 && &v[0] == &f.Value[0] })
}
