package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/status"
)

// Table writes objects and their conditions, with complaints and notes under their object. place returns the place of a field of an
// object, and for "" that of the object; "" if it is not known.
func Table(w io.Writer, objects []*Object, place func(o *Object, field string) string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tSTATE\tWHY")
	for _, o := range objects {
		name := o.String()
		row := func(state, why string) {
			// A message with several lines would break the table.
			fmt.Fprintf(table, "%s\t%s\t%s\n", name, state, strings.Join(strings.Fields(why), " "))
			name = ""
		}
		complaints := o.Complaints()
		if len(complaints) == 0 {
			row(o.state(), o.summary())
		}
		for _, c := range complaints {
			row(c.Condition, c.why(place(o, c.Field())))
		}
		if len(complaints) > 0 && o.state() == notServed {
			row(notServed, o.summary())
		}
		if of := o.observed(); of > 0 && of < o.fields.Metadata.Generation {
			row("late", fmt.Sprintf("the status is of generation %d, the object of %d: the controller has not come to it", of, o.fields.Metadata.Generation))
		}
		for _, n := range o.Notes() {
			row("note", n.why(place(o, n.Field())))
		}
	}
	return table.Flush()
}

// why returns a complaint for a row that already names object and condition.
func (c Complaint) why(place string) string {
	text := c.Reason + ": " + c.Message
	if place != "" {
		text += " (" + place + ")"
	}
	if c.Where != "" {
		text = c.Where + ": " + text
	}
	return text
}

// observed returns the oldest observedGeneration in the status; 0 if none.
func (o *Object) observed() int64 {
	var oldest int64
	for _, s := range o.subjects() {
		for _, c := range s.conditions {
			if c.Type == string(gwv1.RouteConditionAccepted) && status.FallsBack(s.conditions) {
				continue // its generation is that of the version that is served
			}
			if status.GoodWhenTrue(c.Type) && c.ObservedGeneration > 0 && (oldest == 0 || c.ObservedGeneration < oldest) {
				oldest = c.ObservedGeneration
			}
		}
	}
	return oldest
}

func (o *Object) state() string {
	if len(o.subjects()) == 0 {
		switch {
		case o.expected:
			return "waiting"
		case (o.absent != "" || o.refusedParent() != "") && !o.mayBeServed():
			return notServed
		}
		return "-" // no status of this controller, for example of a ReferenceGrant or of a class of another controller
	}
	if len(o.unserved) > 0 && !slices.ContainsFunc(o.subjects(), func(s subject) bool {
		return s.unserved == "" && meta.IsStatusConditionTrue(s.conditions, string(gwv1.RouteConditionAccepted))
	}) {
		return notServed
	}
	return "ok"
}

// full reports whether the status takes no more entries for parents or ancestors.
func (o *Object) full() bool {
	most := status.MaxAncestors
	if o.Kind == "XBackend" {
		most = status.MaxBackendAncestors
	}
	return o.expected && len(o.fields.Status.Parents) >= status.MaxParents || len(o.fields.Status.Ancestors) >= most
}

// notServed is the state of a route that is accepted on listeners none of which is programmed, or whose Gateway does not exist or is
// invalid, and of a ListenerSet whose Gateway is invalid.
const notServed = "not served"

// mayBeServed reports whether a route may be served by another Gateway than those that are known not to serve it.
func (o *Object) mayBeServed() bool { return o.foreignParent || o.mayBeElsewhere() }

// mayBeElsewhere reports whether a parent of a route is a Gateway of another namespace that is not shown, and so may exist.
func (o *Object) mayBeElsewhere() bool {
	return slices.ContainsFunc(o.unseen, func(gateway string) bool { return !o.causes[gateway] })
}

// refusedParent returns the parent of a route or of a ListenerSet, or the Gateway of such a parent, that Blame knows to be rejected; ""
// if none.
func (o *Object) refusedParent() string {
	parents := o.fields.Spec.ParentRefs
	if o.ofListeners() {
		parents = []ref{o.fields.Spec.ParentRef}
	}
	for _, p := range parents {
		name := p.object(o.Namespace)
		if o.causes[name] {
			return name
		}
		if gateway := o.invalidGateways[name]; gateway != "" {
			return gateway
		}
	}
	return ""
}

// refusedDefault returns a Gateway that Blame knows to be rejected, and that may be a default one for a route; "" if none.
func (o *Object) refusedDefault() string {
	if scope := o.fields.Spec.UseDefaultGateways; scope == "" || scope == scopeNone {
		return ""
	}
	first := ""
	for name, refused := range o.causes {
		if refused && strings.HasPrefix(name, "Gateway ") && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// hasTargets reports whether the object is a policy with targets.
func (o *Object) hasTargets() bool {
	spec := &o.fields.Spec
	return spec.TargetRef != nil || spec.TargetRefs != nil || spec.TargetSelectors != nil
}

// summary returns the summary of an object without problems.
func (o *Object) summary() string {
	if o.foreign() {
		return "managed by controller " + o.controller
	}
	if len(o.subjects()) == 0 {
		switch {
		case o.refusedParent() != "":
			return o.refusedParent() + " is not valid"
		case o.ofListeners() && o.controller == "":
			return "its Gateway does not exist, or does not belong to controller " + o.ours
		case o.Kind == "Gateway" && o.controller == "":
			return "not managed by " + o.ours + ": its GatewayClass does not exist"
		case o.full():
			return "the status has no room for an entry of controller " + o.ours + ": if there would be one, the controller's log and an Event with reason StatusFull have what it would report"
		case o.expected, o.Kind == "Gateway", o.Kind == "GatewayClass":
			return "controller " + o.ours + " has written no status: does it run?"
		case o.absent != "":
			return o.absent
		case o.mayBeElsewhere():
			return "controller " + o.ours + " has written no status, and its Gateway is in another namespace"
		case o.refusedDefault() != "":
			return o.refusedDefault() + ", which may be a default Gateway, is not valid"
		case strings.HasSuffix(o.Kind, "Route"):
			return "none of its parents is a Gateway of controller " + o.ours
		case o.hasTargets():
			return "no Gateway of controller " + o.ours + " uses its targets, they are not in this namespace, or no status was written yet"
		}
	}
	var parts []string
	for _, l := range o.fields.Status.Listeners {
		routes := fmt.Sprintf("%d routes", l.AttachedRoutes)
		if l.AttachedRoutes == 1 {
			routes = "1 route"
		}
		parts = append(parts, l.Name+": "+routes)
	}
	for _, s := range o.subjects() {
		if strings.HasPrefix(s.where, "parent ") || strings.HasPrefix(s.where, "ancestor ") {
			if s.unserved != "" {
				s.where += ": " + s.unserved
			}
			parts = append(parts, s.where)
		}
	}
	return strings.Join(parts, ", ")
}
