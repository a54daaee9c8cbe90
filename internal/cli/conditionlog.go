package cli

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status/show"
	"github.com/moongate-dev/moongate/internal/translate"
)

// maxConditionLines limits the lines that one change of the manifests may log: if a GatewayClass is removed, thousands of routes
// report problems.
const maxConditionLines = 100

// fieldIndex matches the index of an entry in a list, which changes if an entry before it is added or removed.
var fieldIndex = regexp.MustCompile(`\[\d+\]`)

// conditionLog logs the problems in conditions of objects, once when they appear, and when they are resolved. It is safe for
// concurrent use.
type conditionLog struct {
	log     *slog.Logger
	objects *objectStore
	source  *files.Source

	mu      sync.Mutex
	suggest *suggestions                // from all objects in the manifests
	refused []kind.ObjectKey            // objects that are known to suggest only by name
	logged  map[kind.ObjectKey][]string // what was logged and still applies, as in statuses, without indexes: changed suggestions or indexes are not logged again
}

// change must be called with a change of the manifests before the resulting statuses are published.
func (l *conditionLog) change(c files.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suggest == nil || c.Full {
		l.suggest = newSuggestions(nil, nil)
	}
	for _, id := range l.refused {
		l.suggest.remove(id)
	}
	l.refused = nil
	for _, id := range c.Deletes {
		l.suggest.remove(id)
	}
	for _, o := range c.Upserts {
		l.suggest.add(o)
	}
	for _, p := range c.Problems {
		if p.Object.Name != "" && !l.suggest.names.has(p.Object) { // a reference may mean the object although it was rejected
			l.suggest.takeProblem(p)
			l.refused = append(l.refused, p.Object)
		}
	}
}

// publish logs the problems in status changes that the store already contains.
func (l *conditionLog) publish(changes []translate.StatusChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, more := 0, 0
	line := func(log func()) {
		if lines++; lines <= maxConditionLines {
			log()
		} else {
			more++
		}
	}
	for _, c := range changes {
		var complaints []show.Complaint
		if !show.Good(c.Status) {
			complaints = l.complaints(c.Object)
		}
		before := l.logged[c.Object]
		known := slices.Clone(before)
		var now []string
		for _, complaint := range complaints {
			text := fieldIndex.ReplaceAllString(complaint.String(), "[]")
			now = append(now, text)
			if i := slices.Index(known, text); i >= 0 { // each known text matches one problem
				known = slices.Delete(known, i, i+1)
				continue
			}
			line(func() {
				// The line of the document, not of the field: the latter would require reading the file, which may block the control
				// loop.
				at, _ := l.source.Position(c.Object)
				message := l.suggested(complaint.Message, c.Object.Namespace)
				l.log.Warn("condition", "object", c.Object.String(), "where", complaint.Where, "at", at.String(), "field", complaint.Field(),
					"condition", complaint.Condition, "reason", complaint.Reason, "message", message)
			})
		}
		if len(now) > 0 {
			if l.logged == nil {
				l.logged = map[kind.ObjectKey][]string{}
			}
			l.logged[c.Object] = now
			continue
		}
		delete(l.logged, c.Object)
		if _, there := l.objects.objects.Get(c.Object); there && len(before) > 0 {
			line(func() {
				l.log.Info("condition", "object", c.Object.String(), "message", "the problem is resolved")
			})
		}
	}
	if more > 0 {
		l.log.Warn("conditions of more objects have changed; moongate status shows all", "objects", more)
	}
}

// rewrite returns message with a suggestion of the name that was probably meant, from the present manifests; for explain.World.
func (l *conditionLog) rewrite(message, namespace string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suggested(message, namespace)
}

// others returns the objects that /status does not show and that references may mean, sorted.
func (l *conditionLog) others() (all []admin.Other) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suggest == nil {
		return nil
	}
	for id := range l.suggest.names.all() {
		if k := kind.Find(id.Group, id.Kind); k != nil && !k.Custom {
			all = append(all, admin.Other{Object: id.String(), Ports: l.suggest.ports[id]})
		}
	}
	slices.SortFunc(all, func(a, b admin.Other) int { return strings.Compare(a.Object, b.Object) })
	return all
}

// suggested is rewrite; the caller must hold mu.
func (l *conditionLog) suggested(message, namespace string) string {
	if l.suggest == nil {
		return message
	}
	return l.suggest.rewrite(message, namespace)
}

// complaints returns the problems of an object in its present state; none if it does not exist.
func (l *conditionLog) complaints(id kind.ObjectKey) []show.Complaint {
	object, ok := l.objects.objects.Get(id)
	if !ok {
		return nil
	}
	shown, err := show.Objects([]any{object}, controllerName)
	if err != nil { // cannot happen with an object of the store
		return nil
	}
	return shown[0].Complaints()
}
