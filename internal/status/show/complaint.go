package show

import (
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Complaint is a condition that says that something is wrong.
type Complaint struct {
	Object    string `json:"object"`
	Where     string `json:"where,omitempty"` // the part of the object; "" for all of it
	Condition string `json:"condition"`       // "Accepted=False"
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// fieldPath is how messages that are about one field begin.
var fieldPath = regexp.MustCompile(`^((?:spec|metadata|data|stringData)[^\s:]*): `)

// Field is the path of the field that the complaint is about; "" where it does not say.
func (c Complaint) Field() string {
	if m := fieldPath.FindStringSubmatch(c.Message); m != nil {
		return m[1]
	}
	return ""
}

// String is the complaint on one line.
func (c Complaint) String() string {
	where := ""
	if c.Where != "" {
		where = " " + c.Where
	}
	return c.Object + where + ": " + c.Condition + " " + c.Reason + ": " + c.Message
}

// The conditions of the Gateway API that ought to be True, and those that ought not.
// What conditions of other programs mean is not for us to say.
var (
	goodWhenTrue = []string{"Accepted", "AddressesAssigned", "Programmed", "ResolvedRefs", "SupportedVersion"}
	toldWhenTrue = []string{"Aggregated", "Merged", "Overridden", "Warning"} // of policies: neither good nor bad
	badWhenTrue  = []string{"Conflicted", "InsecureFrontendValidationMode", "OverlappingTLSConfig", "PartiallyInvalid"}
)

// summaries are reasons that only say that a part has a complaint of its own.
var summaries = []string{"ListenersNotValid", "ListenersNotResolved"}

func good(c metav1.Condition) bool {
	if slices.Contains(goodWhenTrue, c.Type) {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse || !slices.Contains(badWhenTrue, c.Type)
}

// Complaints are what an object's conditions say against it, consequences left out: what only
// sums up, what repeats a reason, and a Programmed=False whose cause is told.
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

// notes are what conditions that are well say all the same, as of a field that is
// not followed. Only they have a message then, but for the version that was found.
func (o *Object) notes() []Complaint {
	var all []Complaint
	for _, s := range o.subjects() {
		for _, c := range s.conditions {
			summary := slices.Contains(summaries, c.Reason) || c.Type == "SupportedVersion"
			if (slices.Contains(goodWhenTrue, c.Type) || slices.Contains(toldWhenTrue, c.Type) && c.Status == metav1.ConditionTrue) && good(c) && c.Message != "" && !summary {
				all = append(all, o.complaint(s, c))
			}
		}
	}
	return all
}

func (o *Object) complaint(s subject, c metav1.Condition) Complaint {
	return Complaint{o.String(), s.where, c.Type + "=" + string(c.Status), c.Reason, c.Message}
}

// consequence says that c tells nothing that others do not.
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
	case c.Condition == "Programmed=False":
		return slices.ContainsFunc(all, cause)
	}
	return slices.ContainsFunc(before, repeated)
}
