package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/controller"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// objectFilter selects objects to show. The zero value selects all.
type objectFilter struct {
	namespace string // "" means all; objects without a namespace are always selected
	asked     []askedObject
}

// askedObject is an argument: a kind, or an object of it.
type askedObject struct{ kind, name string }

// newObjectFilter reads arguments in the form of kubectl: KIND, KIND/NAME, or KIND NAME...
func newObjectFilter(namespace string, args []string) (*objectFilter, error) {
	f := &objectFilter{namespace: namespace}
	if len(args) == 0 {
		return f, nil
	}
	if !strings.Contains(args[0], "/") && len(args) > 1 && !strings.Contains(strings.Join(args, ""), "/") {
		k, err := shownKind(args[0])
		if err != nil {
			return nil, err
		}
		for _, name := range args[1:] {
			f.asked = append(f.asked, askedObject{k.Name, name})
		}
		return f, nil
	}
	for _, arg := range args {
		kindName, name, slash := strings.Cut(arg, "/")
		if strings.Contains(name, "/") || slash && name == "" {
			return nil, usage("%q is not KIND/NAME, as in httproute/shop; the namespace goes into -n", arg)
		}
		k, err := shownKind(kindName)
		if err != nil {
			return nil, err
		}
		f.asked = append(f.asked, askedObject{k.Name, name})
	}
	return f, nil
}

// shownKinds returns the kinds that status shows.
func shownKinds() (kinds []*kind.Kind) {
	for _, k := range kind.All() {
		if k.Custom {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// shownKind returns the kind by its name, resource or short name, regardless of case, with or without the API group.
func shownKind(text string) (*kind.Kind, error) {
	name, group, grouped := strings.Cut(text, ".")
	var names []string
	for _, k := range shownKinds() {
		if (strings.EqualFold(name, k.Name) || strings.EqualFold(name, k.Resource) || k.ShortName != "" && strings.EqualFold(name, k.ShortName)) && (!grouped || strings.EqualFold(group, k.Group)) {
			return k, nil
		}
		names = append(names, strings.ToLower(k.Name))
	}
	if near := schema.Nearest(strings.ToLower(name), names); near != "" {
		return nil, usage("there is no kind %q here; did you mean %s?", text, near)
	}
	slices.Sort(names)
	return nil, usage("there is no kind %q here; use one of %s", text, strings.Join(names, ", "))
}

func (f *objectFilter) all() bool { return f.namespace == "" && len(f.asked) == 0 }

// selects reports whether an object is selected, and adds the matching argument to found, unless found is nil.
func (f *objectFilter) selects(kindName, namespace, name string, found map[askedObject]bool) bool {
	if f.namespace != "" && namespace != "" && namespace != f.namespace {
		return false
	}
	selected := len(f.asked) == 0
	for _, a := range f.asked {
		if a.kind == kindName && (a.name == "" || a.name == name) {
			selected = true
			if found != nil {
				found[a] = true
			}
		}
	}
	return selected
}

// apply removes what is not selected from a status, and returns the rest as objects. An error names the arguments that match
// nothing.
func (f *objectFilter) apply(status *admin.Status) ([]*show.Object, error) {
	off := ofStatus(status)
	objects, err := show.Objects(status.Items, off.controller)
	if err != nil {
		return objects, err
	}
	status.Others, status.ControllerName = nil, "" // they were not asked for
	show.Blame(objects, off.refused)
	show.Suggest(objects, off.suggest.rewrite)
	if f.all() {
		return objects, nil
	}
	found := map[askedObject]bool{}
	var shown []*show.Object
	items := []any{}
	for i, o := range objects {
		if f.selects(o.Kind, o.Namespace, o.Name, found) {
			shown, items = append(shown, o), append(items, status.Items[i])
		}
	}
	problems := []admin.Problem{}
	for _, p := range status.Problems {
		kindName, id, named := strings.Cut(p.Object, " ")
		namespace, name, namespaced := strings.Cut(id, "/")
		if !namespaced {
			namespace, name = "", id
		}
		ofKind := !named && slices.ContainsFunc(f.asked, func(a askedObject) bool { return a.kind == p.Object }) // in a cluster: a kind that cannot be listed
		leaderless := kindName == "Lease" && name == controller.LeaseName                                        // then no status can be trusted, see clusterStatus
		// A problem that names no object may concern any.
		if !named && len(f.asked) == 0 || ofKind || leaderless || named && f.selects(kindName, namespace, name, found) {
			problems = append(problems, p)
		}
	}
	status.Items, status.Problems = items, problems
	for _, a := range f.asked {
		if a.name != "" && !found[a] {
			in := ""
			if f.namespace != "" {
				in = " in namespace " + f.namespace
			}
			var names []string
			for _, o := range objects {
				if o.Kind == a.kind && (f.namespace == "" || o.Namespace == f.namespace) {
					names = append(names, o.Name)
				}
			}
			if near := schema.Nearest(a.name, names); near != "" {
				in += fmt.Sprintf("; did you mean %s?", near)
			}
			return shown, &exitError{exitProblems, fmt.Errorf("there is no %s %s%s", a.kind, a.name, in)}
		}
	}
	return shown, nil
}
