package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/admin"
)

// printAs writes v as "json" or "yaml".
func printAs(w io.Writer, format string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// shownObject is what the tables need of an object of /status, whatever its kind.
type shownObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Listeners  []struct {
			Name           string             `json:"name"`
			AttachedRoutes int32              `json:"attachedRoutes"`
			Conditions     []metav1.Condition `json:"conditions"`
		} `json:"listeners"`
		Parents []struct {
			ParentRef struct {
				Namespace   string `json:"namespace"`
				Name        string `json:"name"`
				SectionName string `json:"sectionName"`
				Port        int32  `json:"port"`
			} `json:"parentRef"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"parents"`
	} `json:"status"`
}

func (o *shownObject) name() string {
	if o.Metadata.Namespace == "" {
		return o.Kind + " " + o.Metadata.Name
	}
	return o.Kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name
}

// subject is a part of an object that has conditions of its own.
type subject struct {
	where      string // "", "listener http" or "parent default/gw"
	conditions []metav1.Condition
}

func (o *shownObject) subjects() []subject {
	var all []subject
	if len(o.Status.Conditions) > 0 {
		all = append(all, subject{"", o.Status.Conditions})
	}
	for _, l := range o.Status.Listeners {
		all = append(all, subject{"listener " + l.Name, l.Conditions})
	}
	for _, p := range o.Status.Parents {
		ref := p.ParentRef
		where := "parent " + ref.Name
		if ref.Namespace != "" {
			where = "parent " + ref.Namespace + "/" + ref.Name
		}
		if ref.SectionName != "" {
			where += " listener " + ref.SectionName
		}
		if ref.Port != 0 {
			where += fmt.Sprintf(" port %d", ref.Port)
		}
		all = append(all, subject{where, p.Conditions})
	}
	return all
}

// complaint is a condition that says that something is wrong.
type complaint struct {
	Object    string `json:"object"`
	Where     string `json:"where,omitempty"`
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// goodWhenTrue are the conditions that ought to be True; of all others True is
// the worse (Conflicted, PartiallyInvalid, OverlappingTLSConfig).
var goodWhenTrue = []string{"Accepted", "Programmed", "ResolvedRefs", "SupportedVersion"}

// summaries are reasons that only say that a part has a complaint of its own.
var summaries = []string{"ListenersNotValid", "ListenersNotResolved"}

// complaints are what an object's conditions say against it, consequences left out: what only
// sums up, what repeats a reason, and a Programmed=False whose cause is told.
func (o *shownObject) complaints() []complaint {
	var all []complaint
	for _, s := range o.subjects() {
		for _, c := range s.conditions {
			good := metav1.ConditionFalse
			if slices.Contains(goodWhenTrue, c.Type) {
				good = metav1.ConditionTrue
			}
			if c.Status != good {
				all = append(all, complaint{o.name(), s.where, c.Type + "=" + string(c.Status), c.Reason, c.Message})
			}
		}
	}
	causes := make([]complaint, 0, len(all))
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

// consequence says that c tells nothing that others do not.
func consequence(c complaint, all, before []complaint) bool {
	inPart := func(o complaint) bool { return o.Where != "" }
	cause := func(o complaint) bool {
		return o.Condition != "Programmed=False" && (o.Where == "" || o.Where == c.Where)
	}
	repeated := func(o complaint) bool { return o.Where == c.Where && o.Reason == c.Reason && o.Message == c.Message }
	switch {
	case slices.Contains(summaries, c.Reason):
		return slices.ContainsFunc(all, inPart)
	case c.Condition == "Programmed=False":
		return slices.ContainsFunc(all, cause)
	}
	return slices.ContainsFunc(before, repeated)
}

// shownObjects reads the items of a Status.
func shownObjects(items []any) ([]*shownObject, error) {
	text, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	var objects []*shownObject
	return objects, json.Unmarshal(text, &objects)
}

// printObjects writes the table of objects and conditions, complaints under their object.
// place tells where an object is written; "" where nobody knows.
func printObjects(w io.Writer, objects []*shownObject, place func(*shownObject) string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OBJECT\tSTATE\tWHY")
	for _, o := range objects {
		complaints := o.complaints()
		if len(complaints) == 0 {
			fmt.Fprintf(table, "%s\t%s\t%s\n", o.name(), o.state(), o.summary())
			continue
		}
		name := o.name()
		for _, c := range complaints {
			why := c.Reason + ": " + c.Message + inParens(place(o))
			if c.Where != "" {
				why = c.Where + ": " + why
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", name, c.Condition, why)
			name = ""
		}
	}
	return table.Flush()
}

func (o *shownObject) state() string {
	if len(o.subjects()) == 0 {
		return "-" // no status of ours, as of a ReferenceGrant or a foreign class
	}
	return "ok"
}

// summary is what is worth a glance where all is well.
func (o *shownObject) summary() string {
	if len(o.subjects()) == 0 {
		switch {
		case o.Kind == "Gateway" || o.Kind == "GatewayClass":
			return "not ours: no GatewayClass of controller " + controllerName
		case strings.HasSuffix(o.Kind, "Route"):
			return "not ours: no Gateway of ours is among its parentRefs"
		}
	}
	var parts []string
	for _, l := range o.Status.Listeners {
		parts = append(parts, l.Name+": "+count(int(l.AttachedRoutes), "route"))
	}
	for _, s := range o.subjects() {
		if strings.HasPrefix(s.where, "parent ") {
			parts = append(parts, s.where)
		}
	}
	return strings.Join(parts, ", ")
}

// problemLine is a problem of the file source on one line.
func problemLine(p admin.Problem) string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	for _, part := range []string{p.Object, p.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Message)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}
