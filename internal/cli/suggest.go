package cli

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// suggestions knows the names that messages may have meant. Statuses do not contain suggestions, because they would depend on all
// objects of a namespace.
type suggestions struct {
	names     *nameIndex
	refused   map[kind.ObjectKey]bool          // objects without a valid definition
	ports     map[kind.ObjectKey][]string      // of Services
	listeners map[kind.ObjectKey][]string      // of Gateways and ListenerSets
	sets      map[listenerName]map[string]bool // names of ListenerSets, by their listeners
}

// listenerName is the name of a listener in a namespace.
type listenerName struct{ namespace, name string }

// newSuggestions returns the suggestions for objects, and for the names of rejected objects with problems.
func newSuggestions(objects []files.Object, problems []files.Problem) *suggestions {
	s := &suggestions{names: newNameIndex(), refused: map[kind.ObjectKey]bool{}, ports: map[kind.ObjectKey][]string{}, listeners: map[kind.ObjectKey][]string{}, sets: map[listenerName]map[string]bool{}}
	for _, p := range problems {
		if p.Object.Name != "" {
			s.takeProblem(p)
		}
	}
	for _, o := range objects {
		s.add(o)
	}
	return s
}

// takeProblem adds the object of a problem, if it is not among the valid ones.
func (s *suggestions) takeProblem(p files.Problem) {
	s.names.add(p.Object)
	if !p.Ignored && !p.Warning {
		s.refused[p.Object] = true
	}
}

// add adds an object, or another version of it.
func (s *suggestions) add(o files.Object) {
	s.forget(o.ID)
	s.names.add(o.ID)
	if _, undecoded := o.Object.(*kind.Undecoded); undecoded {
		s.refused[o.ID] = true
	}
	var listeners []string
	switch o := o.Object.(type) {
	case *corev1.Service:
		for _, p := range o.Spec.Ports {
			s.ports[kind.KeyOf(o)] = append(s.ports[kind.KeyOf(o)], strconv.Itoa(int(p.Port)))
		}
	case *gwv1.Gateway:
		for _, l := range o.Spec.Listeners {
			listeners = append(listeners, string(l.Name))
		}
	case *gwv1.ListenerSet:
		for _, l := range o.Spec.Listeners {
			listeners = append(listeners, string(l.Name))
		}
	case *gwx.XListenerSet:
		for _, l := range o.Spec.Listeners {
			listeners = append(listeners, string(l.Name))
		}
	}
	if len(listeners) == 0 {
		return
	}
	s.listeners[o.ID] = listeners
	if o.ID.Kind != kind.ListenerSet.Name {
		return
	}
	for _, l := range listeners {
		in := listenerName{o.ID.Namespace, l}
		if s.sets[in] == nil {
			s.sets[in] = map[string]bool{}
		}
		s.sets[in][o.ID.Name] = true
	}
}

// remove removes an object.
func (s *suggestions) remove(id kind.ObjectKey) {
	s.forget(id)
	s.names.remove(id)
}

// forget removes what is known of an object, except its name.
func (s *suggestions) forget(id kind.ObjectKey) {
	if id.Kind == kind.ListenerSet.Name {
		for _, l := range s.listeners[id] {
			in := listenerName{id.Namespace, l}
			delete(s.sets[in], id.Name)
			if len(s.sets[in]) == 0 {
				delete(s.sets, in)
			}
		}
	}
	delete(s.refused, id)
	delete(s.ports, id)
	delete(s.listeners, id)
}

// The messages of translation about names or numbers that lead nowhere.
var (
	absentObject   = regexp.MustCompile(`(\w+) (?:([^\s/]+)/)?([^\s/]+) (does not exist(?: in the namespace)?); create it or correct the (?:name|reference)`)
	absentPort     = regexp.MustCompile(`(Service) ([^\s/]+)/([^\s/]+) has no port \d+; add the port to the Service or correct the number`)
	absentListener = regexp.MustCompile(`(\w+) ([^\s/]+)/([^\s/]+) has no listener named ("[^"]+"); correct the name`)
)

// rewrite returns message with the name or the number that was probably meant; for show.Suggest.
func (s *suggestions) rewrite(message, namespace string) string {
	message = absentObject.ReplaceAllStringFunc(message, func(text string) string {
		m := absentObject.FindStringSubmatch(text)
		namespace := cmp.Or(m[2], namespace)
		k := kind.Named(m[1])
		if k == nil {
			return text
		}
		if s.refused[k.Key(namespace, m[3])] {
			return text[:strings.LastIndex(text, " does not exist")] + " is not valid; correct what is reported of it"
		}
		text, remedy := m[1]+text[len(m[1]):strings.LastIndex(text, "create it")], text[strings.LastIndex(text, "create it"):]
		if host := strings.Split(m[3], "."); k == kind.Service.Kind && len(host) > 2 && host[2] == "svc" && s.names.has(k.Key(host[1], host[0])) {
			return text + fmt.Sprintf("write the Service's name alone, name: %s, and namespace: %s", host[0], host[1])
		}
		if near := s.names.nearest(k, namespace, m[3]); near != "" {
			return text + fmt.Sprintf("did you mean %s? Else create it", near)
		}
		if elsewhere := s.names.elsewhere(k, m[3]); elsewhere != "" && elsewhere != namespace && m[2] != "" { // else it must be in the same namespace
			return text + fmt.Sprintf("did you mean the one in namespace %s? Then write namespace: %s, and have a ReferenceGrant there permit it. Else create it", elsewhere, elsewhere)
		}
		return text + remedy
	})
	message = absentPort.ReplaceAllStringFunc(message, func(text string) string {
		m := absentPort.FindStringSubmatch(text)
		if ports := s.ports[kind.Service.Key(m[2], m[3])]; len(ports) > 0 {
			text += "; it has " + listed("port", ports)
		}
		return text
	})
	return absentListener.ReplaceAllStringFunc(message, func(text string) string {
		m := absentListener.FindStringSubmatch(text)
		k := kind.Named(m[1])
		if k == nil {
			return text
		}
		listeners, asked := s.listeners[k.Key(m[2], m[3])], strings.Trim(m[4], `"`)
		if of := s.ofListenerSet(m[2], asked); of != "" {
			return strings.TrimSuffix(text, "correct the name") + fmt.Sprintf("ListenerSet %s/%s has one: write kind: ListenerSet and name: %s", m[2], of, of)
		}
		if near := schema.Nearest(asked, listeners); near != "" {
			return strings.TrimSuffix(text, "correct the name") + fmt.Sprintf("did you mean %s?", near)
		}
		if len(listeners) > 0 {
			text += "; it has " + listed("listener", listeners)
		}
		return text
	})
}

// ofListenerSet returns the name of the only ListenerSet of a namespace that has a listener with that name; "" if there is none or
// several.
func (s *suggestions) ofListenerSet(namespace, listener string) string {
	return only(s.sets[listenerName{namespace, listener}])
}

// maxListed is the maximum number of names that a message lists.
const maxListed = 8

// listed returns a noun with names: "port 80", "ports 80, 443".
func listed(noun string, names []string) string {
	if len(names) > 1 {
		noun += "s"
	}
	more := ""
	if len(names) > maxListed {
		names, more = slices.Clone(names[:maxListed]), fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return noun + " " + strings.Join(names, ", ") + more
}

// only returns the only member of a set; "" if there is none or several.
func only(set map[string]bool) string {
	if len(set) != 1 {
		return ""
	}
	for one := range set {
		return one
	}
	return ""
}
