package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The conditions of the Gateway API that should be True, and those that should not. The meaning of others is not known.
var (
	goodWhenTrue = []string{"Accepted", "AddressesAssigned", "Programmed", "ResolvedRefs", "SupportedVersion"}
	badWhenTrue  = []string{"Conflicted", "Degraded", "InsecureFrontendValidationMode", "OverlappingTLSConfig", "PartiallyInvalid"}
)

// GoodWhenTrue reports whether a condition type should be True.
func GoodWhenTrue(conditionType string) bool { return slices.Contains(goodWhenTrue, conditionType) }

// BadWhenTrue reports whether a condition type should not be True.
func BadWhenTrue(conditionType string) bool { return slices.Contains(badWhenTrue, conditionType) }

// Transition is a condition of an object that has become bad, bad for another reason, or good again.
type Transition struct {
	Bad             bool
	Reason, Message string
}

// reasonRecovered is used if the condition no longer exists, for example one that should not be True.
const reasonRecovered = "Recovered"

// starting are reasons that every Gateway may have while it starts: they are bad only for one that had an address.
var starting = []string{string(gwv1.GatewayReasonAddressNotAssigned), "NotAssigned"}

// maxNamed is the maximum number of parts of an object that a message names.
const maxNamed = 3

// Transitions returns what has become bad or good between two statuses of an object, in the parts of the controller. A condition
// that only waits (reason Pending, status Unknown, or no address yet) is neither. If several parts have the same transition, there
// is one; it names the listeners, and if there are several parents or ancestors, which of them it is about.
func Transitions(before, after any, controller gwv1.GatewayController) []Transition {
	var all []Transition
	where := map[Transition][]string{}
	found := func(t Transition, part Part) {
		if i := slices.IndexFunc(all, func(o Transition) bool { return o == t || t.Bad && o.Bad && o.Message == t.Message && t.Message != "" }); i >= 0 {
			t = all[i] // one condition is a consequence of the other
		} else {
			all = append(all, t)
		}
		if name := part.String(); name != "" && !slices.Contains(where[t], name) {
			where[t] = append(where[t], name)
		}
	}
	parts, entries := Parts(after, controller), 0
	old := Parts(before, controller)
	for _, part := range parts {
		if part.Ref != nil {
			entries++
		}
		var conditions []metav1.Condition
		if i := slices.IndexFunc(old, part.same); i >= 0 {
			conditions = old[i].Conditions
		}
		for _, c := range part.Conditions {
			was := find(conditions, c.Type)
			switch wasBad := was != nil && bad(*was); {
			case bad(c) && slices.Contains(starting, c.Reason) && (was == nil || !good(*was)):
			case bad(c) && (!wasBad || was.Reason != c.Reason):
				found(Transition{true, c.Reason, c.Message}, part)
			case wasBad && good(c):
				found(Transition{false, c.Reason, cmp.Or(c.Message, fmt.Sprintf("%s is %s", c.Type, c.Status))}, part)
			}
		}
		for _, was := range conditions {
			if BadWhenTrue(was.Type) && bad(was) && find(part.Conditions, was.Type) == nil {
				found(Transition{false, reasonRecovered, was.Type + " no longer applies"}, part)
			}
		}
	}
	for i, t := range all {
		names := where[t]
		if len(names) == 0 || entries == 1 {
			continue
		}
		if n := len(names); n > maxNamed {
			names = append(slices.Clone(names[:maxNamed]), fmt.Sprintf("and %d more", n-maxNamed))
		}
		all[i].Message = strings.Join(names, ", ") + ": " + t.Message
	}
	return all
}

func bad(c metav1.Condition) bool {
	if c.Reason == string(gwv1.GatewayReasonPending) {
		return false
	}
	return GoodWhenTrue(c.Type) && c.Status == metav1.ConditionFalse || BadWhenTrue(c.Type) && c.Status == metav1.ConditionTrue
}

func good(c metav1.Condition) bool {
	return GoodWhenTrue(c.Type) && c.Status == metav1.ConditionTrue || BadWhenTrue(c.Type) && c.Status == metav1.ConditionFalse
}

// same reports whether a part of another status is that of the same listener or entry.
func (p Part) same(q Part) bool {
	return p.Listener == q.Listener && (p.Ref == nil) == (q.Ref == nil) && (p.Ref == nil || sameRef(p.Ref, q.Ref))
}

// String returns the name of the part, "" for the object as a whole: "listener http", "Gateway shop/web listener https".
func (p Part) String() string {
	if p.Ref == nil {
		if p.Listener == "" {
			return ""
		}
		return "listener " + string(p.Listener)
	}
	name := string(p.Ref.Name)
	if p.Ref.Namespace != nil {
		name = string(*p.Ref.Namespace) + "/" + name
	}
	name = string(ptr.Deref(p.Ref.Kind, "Gateway")) + " " + name
	if p.Ref.SectionName != nil {
		name += " listener " + string(*p.Ref.SectionName)
	}
	if p.Ref.Port != nil {
		name += fmt.Sprintf(" port %d", *p.Ref.Port)
	}
	return name
}
