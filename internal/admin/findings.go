package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/status/show"
)

// finding is a problem with its remedy, from any source.
type finding struct {
	Severity string `json:"severity"`        // error or warning
	Object   string `json:"object"`          // "" if only the file is known
	Where    string `json:"where,omitempty"` // file and line, the part of the object, or the field
	Message  string `json:"message"`
	Remedy   string `json:"remedy,omitempty"`
}

// maxJudged limits the objects with problems whose conditions are examined for the cause, and maxOfNamespace those of one namespace
// as long as others have some: no tenant hides the problems of another.
const (
	maxJudged      = 2 * maxRows
	maxOfNamespace = maxRows / 10
)

// soon is how long before its end the expiry of a certificate is reported.
const soon = 30 * 24 * time.Hour

// findings returns the problems of the input, of objects, certificates and backends, errors first, and how many objects with
// problems were not examined. The caller must hold s.looking.
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

// fairly selects at most most entries of list, in order: at most maxOfNamespace of a namespace, and more if there is room left.
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

// namespaceOf returns the namespace in "<kind> <namespace>/<name>" or "<kind>/<namespace>/<name>/...", "" if there is none.
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

// complaints returns the problems in conditions of objects, without consequences, and how many objects with problems were not
// examined because of the limit.
func (s *Server) complaints() (found []finding, unjudged int) {
	var judged []any
	trouble := 0
	of := map[string]int{}
	chosen := map[*entry]bool{}
	for _, all := range [...]bool{false, true} { // first the share of each namespace, then more while there is room
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
		// The class of a Gateway, and the Gateway of a ListenerSet, show which controller manages it.
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
	if err != nil { // cannot happen: all were encoded before
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
