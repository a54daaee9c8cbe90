package migrate

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// program is the program that an image of ingress-nginx runs.
const program = "nginx-ingress-controller"

// launchers start a program with unchanged arguments. A shell, or a script, may change them.
var launchers = []string{"dumb-init", "tini", "catatonit"}

// booleans are the arguments that take a value only after "=".
var booleans = strings.Fields(`watch-ingress-without-class ingress-class-by-name profiling update-status update-status-on-shutdown report-node-internal-ip-address version enable-ssl-passthrough disable-leader-election
	disable-svc-external-name enable-annotation-validation enable-ssl-chain-completion enable-metrics metrics-per-host metrics-per-undefined-host report-status-classes disable-catch-all disable-full-test deep-inspect
	disable-sync-events enable-topology-aware-routing alsologtostderr logtostderr one_output skip_headers skip_log_headers add_dir_header`)

// documentedArgument reports whether ingress-nginx has an argument with that name.
func documentedArgument(name string) bool {
	_, noted := argumentNotes[name]
	_, judged := argumentVerdicts[name]
	return noted || judged || slices.Contains(argumentsWithoutEffect, name)
}

// runsController reports whether a container runs ingress-nginx, directly or by a shell.
func runsController(container *yaml.Node) bool {
	image := text(at(container, "image"))
	if strings.Contains(image, "ingress-nginx/controller") || strings.Contains(image, program) {
		return true
	}
	words, _ := wordsOf(container)
	return slices.ContainsFunc(words, func(w *yaml.Node) bool {
		return !strings.HasPrefix(w.Value, "-") && slices.ContainsFunc(strings.Fields(w.Value), func(f string) bool { return path.Base(f) == program })
	})
}

// wordsOf returns a container's command and arguments; ok is false if these are not lists of words.
func wordsOf(container *yaml.Node) (words []*yaml.Node, ok bool) {
	ok = true
	for _, field := range []string{"command", "args"} {
		list := at(container, field)
		if list == nil {
			continue
		}
		ok = ok && (list.Kind == yaml.SequenceNode || list.Tag == "!!null")
		for _, w := range list.Content {
			w = resolved(w)
			ok = ok && w.Kind == yaml.ScalarNode
			words = append(words, w)
		}
	}
	return words, ok
}

// readArguments reads the arguments of a container that runs ingress-nginx, or sets in unknown why they are not known. Only
// arguments after the program's name count; those before it are for the program that starts it.
func (m *controller) readArguments(container *yaml.Node, line func(*yaml.Node) int) {
	words, ok := wordsOf(container)
	start := slices.IndexFunc(words, func(w *yaml.Node) bool { return path.Base(w.Value) == program && !strings.HasPrefix(w.Value, "-") })
	switch {
	case !ok:
		m.unknown = "its command and args are no lists of words"
	case start < 0:
		m.unknown = "no word of its command and args is the program " + program
	}
	for _, w := range words[:max(start, 0)] {
		if name := path.Base(w.Value); !strings.HasPrefix(w.Value, "-") && !slices.Contains(launchers, name) {
			m.unknown = "it is started by " + name + ", which may give it others"
		}
	}
	if m.unknown != "" {
		return
	}
	env := m.environment(container)
	for i := start + 1; i < len(words); i++ {
		w := words[i]
		word, missing := env.expand(w.Value)
		if word == "--" { // no named argument follows
			return
		}
		name, ok := strings.CutPrefix(word, "-")
		if !ok {
			if missing != "" {
				m.unknown = word + " depends on " + missing + ", which the input does not say"
				return
			}
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		switch {
		case given:
		case slices.Contains(booleans, name):
			value = "true"
		case i+1 < len(words) && (documentedArgument(name) || !strings.HasPrefix(words[i+1].Value, "-")):
			i++
			value, missing = env.expand(words[i].Value)
		case !documentedArgument(name):
			value = "true"
		}
		if _, effect := argumentNotes[name]; missing != "" && (effect || !documentedArgument(name)) {
			m.unknown = "--" + name + " depends on " + missing + ", which the input does not say"
			return
		}
		m.arguments[name] = argument{value, line(w)}
	}
}

// environment is what is known of a container's environment.
type environment struct {
	values  map[string]string
	unknown map[string]bool // variables whose value is defined elsewhere
	more    bool            // envFrom adds further variables
}

func (m *controller) environment(container *yaml.Node) environment {
	// The program does not start without POD_NAMESPACE.
	e := environment{values: map[string]string{"POD_NAMESPACE": m.namespace}, unknown: map[string]bool{}, more: at(container, "envFrom") != nil}
	list := at(container, "env")
	if list == nil {
		return e
	}
	for _, v := range list.Content {
		name, missing := text(at(v, "name")), ""
		delete(e.values, name)
		delete(e.unknown, name)
		switch from := at(v, "valueFrom"); {
		case from == nil:
			e.values[name], missing = e.expand(text(at(v, "value")))
			e.unknown[name] = missing != ""
		case text(at(at(from, "fieldRef"), "fieldPath")) == "metadata.namespace":
			e.values[name] = m.namespace
		default:
			e.unknown[name] = true
		}
	}
	return e
}

var variable = regexp.MustCompile(`\$\$|\$\([-._a-zA-Z0-9]+\)`)

// expand replaces $(NAME) as Kubernetes does: a name without a variable stays. missing is a variable whose value is not known, "" if
// there is none.
func (e environment) expand(word string) (expanded, missing string) {
	expanded = variable.ReplaceAllStringFunc(word, func(v string) string {
		if v == "$$" {
			return "$"
		}
		name := v[2 : len(v)-1]
		value, known := e.values[name]
		if e.unknown[name] || !known && e.more {
			missing = v
		}
		if !known || e.unknown[name] {
			return v
		}
		return value
	})
	return expanded, missing
}
