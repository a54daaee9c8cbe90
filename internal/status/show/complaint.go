package show

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/status"
)

// Complaint is a condition that reports a problem.
type Complaint struct {
	Object    string `json:"object"`
	Where     string `json:"where,omitempty"` // the part of the object; "" for the object as a whole
	Condition string `json:"condition"`       // "Accepted=False"
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	// Parent is, for a route, the Gateway or ListenerSet of the entry, in the form of Object.String.
	Parent string `json:"-"`
	// Follows is set if the cause is reported for another object, and resolving it resolves this; see Blame.
	Follows bool `json:"-"`
}

// fieldPath matches the beginning of messages about one field.
var fieldPath = regexp.MustCompile(`^((?:spec|metadata|data|stringData)[^\s:]*): `)

// ruleFault matches the fault of a rule in a message about rules, for example a filter that cannot be applied.
var ruleFault = regexp.MustCompile(`\bRule \d+: (spec[^\s:]*): `)

// Field returns the path of the field that the complaint is about, of several the first; "" if it names none.
func (c Complaint) Field() string {
	for _, r := range []*regexp.Regexp{ruleFault, fieldPath} {
		if m := r.FindStringSubmatch(c.Message); m != nil {
			return m[1]
		}
	}
	return ""
}

// Warns reports whether the complaint is a warning: it is about something that works as configured, with a risk that the Gateway API
// requires to be reported.
func (c Complaint) Warns() bool {
	return c.Condition == string(gwv1.ListenerConditionOverlappingTLSConfig)+"=True" || c.Condition == string(gwv1.GatewayConditionInsecureFrontendValidationMode)+"=True"
}

// Severity returns "warning" or "error".
func (c Complaint) Severity() string {
	if c.Warns() {
		return "warning"
	}
	return "error"
}

// String returns the complaint on one line.
func (c Complaint) String() string {
	where := ""
	if c.Where != "" {
		where = " " + c.Where
	}
	return c.Object + where + ": " + c.Condition + " " + c.Reason + ": " + c.Message
}

// toldWhenTrue are conditions of policies that are neither good nor bad.
var toldWhenTrue = []string{"Aggregated", "Merged", "Overridden", "Warning"}

// summaries are reasons that only report that a part has a complaint of its own.
var summaries = []string{"ListenersNotValid", "ListenersNotResolved"}

func good(c metav1.Condition) bool {
	if status.GoodWhenTrue(c.Type) {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse || !status.BadWhenTrue(c.Type) // the meaning of conditions of other programs is not known
}

// Complaints returns the problems in an object's conditions, without consequences: without summaries, repetitions of a reason, and a
// Programmed=False whose cause is reported.
func (o *Object) Complaints() []Complaint {
	var all []Complaint
	for _, s := range o.subjects() {
		for _, c := range s.conditions {
			if !good(c) {
				all = append(all, o.complaint(s, c))
			}
		}
	}
	causes := make([]Complaint, 0, len(all))
	for _, c := range all {
		if !consequence(c, all, causes) {
			causes = append(causes, c)
		}
	}
	if len(causes) == 0 {
		return all
	}
	return causes
}

// Notes returns the messages of conditions without a problem, for example about a field that is ignored. Only such conditions have a
// message, except the one about the version that was found.
func (o *Object) Notes() []Complaint {
	var all []Complaint
	for _, s := range o.subjects() {
		for _, c := range s.conditions {
			summary := slices.Contains(summaries, c.Reason) || c.Type == "SupportedVersion"
			if (status.GoodWhenTrue(c.Type) || slices.Contains(toldWhenTrue, c.Type) && c.Status == metav1.ConditionTrue) && good(c) && c.Message != "" && !summary {
				if note := o.complaint(s, c); o.reported == nil || note.withoutFields(o.reported) {
					all = append(all, note)
				}
			}
		}
	}
	return all
}

// LeaveOut removes from the notes of objects what is reported of a field of an object elsewhere.
func LeaveOut(objects []*Object, reported func(o *Object, field string) bool) {
	for _, o := range objects {
		o.reported = func(field string) bool { return reported(o, field) }
	}
}

// nextProblem matches where the next of several problems in a message begins.
var nextProblem = regexp.MustCompile(`\. (?:(?:spec|metadata|data|stringData)[^\s:]*: |and \d+ more$)`)

// withoutFields removes the problems of fields that are reported elsewhere from the message, and reports whether something is left.
func (c *Complaint) withoutFields(reported func(field string) bool) bool {
	var rest []string
	for message := c.Message; message != ""; {
		problem := message
		if next := nextProblem.FindStringIndex(message); next != nil {
			problem = message[:next[0]]
		}
		message = strings.TrimPrefix(message[len(problem):], ". ")
		if m := fieldPath.FindStringSubmatch(problem); m == nil || !reported(m[1]) {
			rest = append(rest, problem)
		}
	}
	c.Message = strings.Join(rest, ". ")
	return len(rest) > 0
}

// Good reports whether no condition of a status is a complaint. It is cheaper than Complaints, and most objects have none.
func Good(status any) bool { return goodIn(reflect.ValueOf(status)) }

var conditionType = reflect.TypeFor[metav1.Condition]()

func goodIn(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || goodIn(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if !goodIn(v.Index(i)) {
				return false
			}
		}
	case reflect.Struct:
		if v.Type() == conditionType {
			return good(v.Interface().(metav1.Condition))
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Slice || f.Kind() == reflect.Struct {
				if !goodIn(f) {
					return false
				}
			}
		}
	}
	return true
}

// Blame marks the complaints of objects that follow from a fault of another object: one of refused, which conditions report as
// absent although it exists and was rejected, or a BackendTLSPolicy or an XBackend among objects that has complaints of its own.
// Keys of refused are in the form of Object.String.
func Blame(objects []*Object, refused map[string]bool) {
	causes := map[string]bool{}
	for name := range refused {
		causes[name] = true
	}
	for _, o := range objects {
		if (o.Kind == "BackendTLSPolicy" || o.Kind == "XBackend") && len(o.Complaints()) > 0 {
			causes[o.String()] = false
		}
	}
	invalidGateways := map[string]string{}
	for _, o := range objects {
		o.causes, o.invalidGateways = causes, invalidGateways
	}
	for _, o := range objects {
		if o.ofListeners() {
			invalidGateways[o.String()] = o.refusedParent()
		}
	}
}

// Suggest sets a function that rewrites the message of each complaint of objects: it knows other objects, and can name what was
// probably meant. The namespace is that of the object with the complaint.
func Suggest(objects []*Object, rewrite func(message, namespace string) string) {
	for _, o := range objects {
		o.rewrite = rewrite
	}
}

func (o *Object) complaint(s subject, c metav1.Condition) Complaint {
	complaint := Complaint{Object: o.String(), Where: s.where, Condition: c.Type + "=" + string(c.Status), Reason: c.Reason, Message: c.Message, Parent: s.parent}
	for name, refused := range o.causes {
		if name == complaint.Object {
			continue
		}
		// The space prevents that ListenerSet a/x is found in XListenerSet a/x.
		message, absent := " "+complaint.Message, " "+name+" does not exist; create it or correct the name"
		switch {
		case refused && strings.Contains(message, " "+name+" is not valid; correct what is reported of it"):
		case refused && strings.Contains(message, absent):
			complaint.Message = strings.ReplaceAll(message, absent, " "+name+" is not valid; correct what is reported of it")[1:]
		case refused && strings.Contains(message, " "+name+", which may ask for TLS to "):
			complaint.Message = strings.TrimSuffix(complaint.Message, ", or install the CustomResourceDefinitions of this version")
		case refused && strings.Contains(message, " "+name+" cannot be read: "):
			complaint.Message = strings.TrimSuffix(complaint.Message, ", or install the CustomResourceDefinitions of this version")
		case !refused && strings.Contains(message, " "+name+" is for ") && strings.Contains(message, "cannot be carried out"),
			!refused && strings.Contains(message, " "+name+" cannot be carried out: "):
		default:
			continue
		}
		complaint.Follows = true
	}
	if o.rewrite != nil && !complaint.Follows {
		complaint.Message = o.rewrite(complaint.Message, o.Namespace)
	}
	return complaint
}

// consequence reports whether c contains nothing that other complaints do not.
func consequence(c Complaint, all, before []Complaint) bool {
	inPart := func(o Complaint) bool { return o.Where != "" }
	cause := func(o Complaint) bool {
		if o.Condition == "AddressesAssigned=False" && !strings.HasPrefix(c.Reason, "Address") {
			return false // a Gateway may lack an address, and not be programmed for another reason
		}
		return o.Condition != "Programmed=False" && (o.Where == "" || o.Where == c.Where)
	}
	repeated := func(o Complaint) bool { return o.Where == c.Where && o.Reason == c.Reason && o.Message == c.Message }
	switch {
	case slices.Contains(summaries, c.Reason):
		return slices.ContainsFunc(all, inPart)
	case strings.HasSuffix(c.Message, "; see condition ResolvedRefs"):
		return slices.ContainsFunc(all, func(o Complaint) bool { return o.Where == c.Where && o.Condition == "ResolvedRefs=False" })
	case c.Condition == "Programmed=False":
		return slices.ContainsFunc(all, cause)
	}
	return slices.ContainsFunc(before, repeated)
}
