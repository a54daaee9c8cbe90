package explain

import (
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// complain adds the conditions that may be why the request fails: those of the rule's route and of the policies because of which the
// rule fails, or else of what could have matched instead. If the request is served, it adds what is missing nevertheless, such as
// one of the rule's backends or a mirror.
func (d *decision) complain() error {
	served := d.Answer.Status < 400
	if d.connection() {
		served = d.Answer.Reason == observe.ReasonOK.String()
	} else if d.Request.Path == "" {
		return nil
	}
	var failed []string
	if d.Answer.Reason == observe.ReasonPolicyInvalid.String() && d.rule != nil {
		failed = policiesOf(d.rule.Config.Traffic)
	}
	objects, err := show.Objects(d.in.Items, d.in.ControllerName)
	show.Suggest(objects, d.in.Suggest)
	concerned := d.concerned(objects)
	for _, o := range objects {
		listeners, ofListeners := concerned[o.String()]
		relevant := ofListeners || d.Listener != nil && strings.HasSuffix(o.Kind, "Route")
		if d.Rule != nil {
			relevant = o.String() == d.Rule.Route || slices.Contains(failed, o.String())
		}
		if !relevant {
			continue
		}
		for _, c := range o.Complaints() {
			if listener, of := strings.CutPrefix(c.Where, "listener "); of && !slices.Contains(listeners, listener) {
				continue
			}
			if c.Parent != "" && concerned[c.Parent] == nil {
				continue
			}
			if d.Rule != nil && served && (c.Condition != "ResolvedRefs=False" || !strings.Contains(c.Message, d.ruleField()+".")) {
				continue
			}
			if !d.mayCause(c) {
				continue
			}
			// Without a rule it does not matter whether routes have their backends.
			if d.Rule != nil || ofListeners || c.Condition != "ResolvedRefs=False" {
				d.Complaints = append(d.Complaints, c)
			}
		}
	}
	return err
}

// mayCause reports whether a complaint may be why the request fails. Warnings are not, except about TLS.
func (d *decision) mayCause(c show.Complaint) bool {
	return !c.Warns() || slices.Contains([]string{observe.ReasonMisdirected.String(), observe.ReasonTLSHandshakeFailed.String()}, d.Answer.Reason)
}

// concerned returns the Gateways and ListenerSets, in the form of show.Object.String, whose listeners the request or connection may
// be for, and these listeners: if a rule was selected, those of its own listener; else all of the port and host, served or not.
func (d *decision) concerned(objects []*show.Object) map[string][]string {
	if d.Rule != nil {
		kind, name := ownerOf(d.listener)
		return map[string][]string{kind + " " + name: {d.listener.Name}}
	}
	all, reached := map[string][]string{}, d.reached(objects)
	for _, o := range objects {
		if o.Kind != "Gateway" && !strings.HasSuffix(o.Kind, "ListenerSet") || reached != nil && !reached[o.Gateway()] {
			continue
		}
		for _, l := range o.Listeners() {
			fits := l.Hostname == "" || hostnameFits(l.Hostname, d.Request.Host) || d.ask.scheme != "http" && hostnameFits(l.Hostname, d.sni())
			if uint32(l.Port) == d.ask.port && (l.Protocol == "UDP") == d.datagrams() && fits {
				all[o.String()] = append(all[o.String()], l.Name)
			}
		}
	}
	return all
}

// reached returns the Gateways whose proxies receive the request; nil if all share their ports.
func (d *decision) reached(objects []*show.Object) map[string]bool {
	if d.in.Gateway == "" {
		return nil
	}
	merged := slices.ContainsFunc(d.in.Resources, func(r *config.Resource) bool {
		return r.GetListener().GetGateway() == d.in.Gateway && r.GetListener().GetMerged() != ""
	})
	class := ""
	for _, o := range objects {
		if o.Kind == "Gateway" && o.Gateway() == d.in.Gateway {
			class = o.Class()
		}
	}
	all := map[string]bool{d.in.Gateway: true}
	for _, o := range objects {
		if merged && o.Kind == "Gateway" && o.Class() == class {
			all[o.Gateway()] = true
		}
	}
	return all
}
