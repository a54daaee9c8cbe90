package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/status/show"
)

// finding is a problem with what helps against it, wherever it was found out.
type finding struct {
	Severity string `json:"severity"`        // error or warning
	Object   string `json:"object"`          // "" where the file is all that is known
	Where    string `json:"where,omitempty"` // file and line, the part of the object, or the field
	Message  string `json:"message"`
	Remedy   string `json:"remedy,omitempty"`
}

// maxJudged bounds the objects with trouble whose conditions are read for their causes, and maxOfNamespace those of one namespace as long as others have some: no tenant
// hides the trouble of another.
const (
	maxJudged      = 2 * maxRows
	maxOfNamespace = maxRows / 10
)

// soon is before how long a certificate expires that is reported.
const soon = 30 * 24 * time.Hour

// findings are the problems of the input, of objects, certificates and backends: errors first, and how many objects with trouble were not looked at. s.looking is held.
func (s *Server) findings(problems []Problem, backends map[string][]Backend) (found []finding, unjudged int) {
	found = []finding{}
	for _, p := range problems {
		if !p.Ignored || p.Warning {
			found = append(found, p.finding())
		}
	}
	complaints, unjudged := s.complaints()
	found = append(found, complaints...)
	for _, c := range s.readCertificates() {
		if f, ok := c.finding(time.Now()); ok {
			found = append(found, f)
		}
	}
	for key, list := range backends {
		for i := range list {
			if total := len(list[i].Endpoints); total > 0 && !slices.ContainsFunc(list[i].Endpoints, func(e Endpoint) bool { return e.class() != "bad" }) {
				found = append(found, finding{Severity: "error", Object: key, Message: fmt.Sprintf("none of its %d endpoints is healthy", total),
					Remedy: "see what its endpoints answer, and the health checks and outlier detection of its policies"})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Object, b.Object))
	})
	return found, unjudged
}

// fairly chooses so many of list, in its order: at most maxOfNamespace of a namespace, and more of it where room is left.
func fairly(list []finding, most int) []finding {
	if len(list) <= most {
		return list
	}
	var chosen []int
	of := map[string]int{}
	var rest []int
	for i := range list {
		if n := namespaceOf(list[i].Object); of[n] < maxOfNamespace && len(chosen) < most {
			of[n]++
			chosen = append(chosen, i)
		} else {
			rest = append(rest, i)
		}
	}
	chosen = append(chosen, rest[:most-len(chosen)]...)
	slices.Sort(chosen)
	out := make([]finding, 0, most)
	for _, i := range chosen {
		out = append(out, list[i])
	}
	return out
}

// namespaceOf is the namespace in "<kind> <namespace>/<name>" or "<kind>/<namespace>/<name>/...", "" where there is none.
func namespaceOf(object string) string {
	rest := object
	if i := strings.IndexAny(object, " /"); i >= 0 {
		rest = object[i+1:]
	}
	namespace, _, ok := strings.Cut(rest, "/")
	if !ok {
		return ""
	}
	return namespace
}

func (p *Problem) finding() finding {
	f := finding{Severity: "error", Object: p.Object, Where: p.Field, Message: p.Message, Remedy: p.Remedy}
	if p.Warning {
		f.Severity = "warning"
	}
	if p.File != "" {
		f.Where = strings.TrimSpace(fmt.Sprintf("%s:%d %s", p.File, p.Line, p.Field))
	}
	if p.Kept {
		f.Remedy = strings.TrimPrefix(f.Remedy+"; the previous version stays in use", "; ")
	} else if p.Effect != "" {
		f.Remedy = strings.TrimPrefix(f.Remedy+"; "+p.Effect, "; ")
	}
	return f
}

// complaints are what conditions say against objects, consequences left out, and how many objects with trouble were left out for their number.
func (s *Server) complaints() (found []finding, unjudged int) {
	var judged []any
	trouble := 0
	of := map[string]int{}
	chosen := map[*entry]bool{}
	for _, all := range [...]bool{false, true} { // each namespace its share, then what there is room for
		for _, e := range s.inventory.all {
			if !e.trouble || chosen[e] || len(chosen) == maxJudged {
				continue
			}
			if n := namespaceOf(e.kind + " " + e.name); all || of[n] < maxOfNamespace {
				of[n]++
				chosen[e] = true
			}
		}
	}
	for _, e := range s.inventory.all {
		// Whose a Gateway is its class says, and a ListenerSet its Gateway.
		if e.kind == "GatewayClass" || e.kind == "Gateway" && len(chosen) > 0 || chosen[e] {
			judged = append(judged, e.item)
		}
		if e.trouble {
			trouble++
		}
	}
	unjudged = trouble - len(chosen)
	if trouble == 0 {
		return nil, 0
	}
	if s.judged != nil && sameItems(s.judged, judged) {
		return s.complained, unjudged
	}
	objects, err := show.Objects(judged, s.options.ControllerName)
	if err != nil { // cannot be: all have been printed before
		return nil, unjudged
	}
	for _, o := range objects {
		for _, c := range o.Complaints() {
			message, remedy, _ := strings.Cut(clip(c.Message, maxShownMessage), "; ")
			found = append(found, finding{Severity: c.Severity(), Object: c.Object, Where: c.Where, Message: c.Reason + ": " + message, Remedy: remedy})
		}
	}
	s.judged, s.complained = judged, found
	return found, unjudged
}
