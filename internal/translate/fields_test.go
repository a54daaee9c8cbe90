package translate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"
	"sigs.k8s.io/yaml"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
	"github.com/moongate-dev/moongate/internal/translate"
)

// fieldSubject is an object of which fields are edited, one at a time.
type fieldSubject struct {
	object string // the manifest that is edited
	// beside are further manifests, after those of fieldContext.
	beside string
	edits  []fieldEdit
}

// fieldEdit sets a field, which must show.
type fieldEdit struct {
	field string // as "spec.rules[0].name"
	value string // in YAML
	// of are the parts of value whose effect shows, as ".name .kind"; "" is the field itself.
	of   string
	want string // is in a line of config or statuses that was not there before
	gone string // is in a line that is not there any more, where nothing new is said
	// refused says that today's CustomResourceDefinition does not admit the value, so that only an older one lets it in.
	refused bool
}

// fieldsOf are the fields of a type that edits of a kind must cover.
var fieldsOf = []struct {
	kind  string
	under string
	typ   reflect.Type
}{
	{"XBackendTrafficPolicy", "spec", reflect.TypeFor[gwx.BackendTrafficPolicySpec]()},
	{"XListenerSet", "spec", reflect.TypeFor[gwx.ListenerSetSpec]()},
	{"XBackend", "spec", reflect.TypeFor[apisx.BackendSpec]()},
	{"HTTPRoute", "spec.rules[].sessionPersistence", reflect.TypeFor[gwv1.SessionPersistence]()},
	{"GRPCRoute", "spec.rules[].sessionPersistence", reflect.TypeFor[gwv1.SessionPersistence]()},
	{"HTTPRoute", "spec.rules[].filters[].externalAuth", reflect.TypeFor[gwv1.HTTPExternalAuthFilter]()},
	{"Gateway", "spec.listeners[].filters", reflect.TypeFor[gwv1.ListenerFilters]()},
	{"ListenerSet", "spec.listeners[].filters", reflect.TypeFor[gwv1.ListenerFilters]()},
	{"HTTPFilter", "spec", reflect.TypeFor[v1alpha1.HTTPFilterSpec]()},
	{"XTelemetryPolicy", "spec", reflect.TypeFor[apisx.TelemetryPolicySpec]()},
	{"BackendTrafficPolicy", "spec.telemetry", reflect.TypeFor[eg.BackendTelemetry]()},
}

// referenceFields are the fields that the reference of gateway.networking.x-k8s.io/v1alpha1 of Gateway API v1.3.0 has, whatever later versions have made of them.
var referenceFields = map[string][]string{
	"XBackendTrafficPolicy": {
		"spec.targetRefs[].group", "spec.targetRefs[].kind", "spec.targetRefs[].name",
		"spec.retryConstraint.budget.percent", "spec.retryConstraint.budget.interval",
		"spec.retryConstraint.minRetryRate.count", "spec.retryConstraint.minRetryRate.interval",
		"spec.sessionPersistence.sessionName", "spec.sessionPersistence.absoluteTimeout", "spec.sessionPersistence.idleTimeout",
		"spec.sessionPersistence.type", "spec.sessionPersistence.cookieConfig.lifetimeType",
	},
	"XListenerSet": {
		"spec.parentRef.group", "spec.parentRef.kind", "spec.parentRef.name", "spec.parentRef.namespace",
		"spec.listeners[].name", "spec.listeners[].hostname", "spec.listeners[].port", "spec.listeners[].protocol",
		"spec.listeners[].tls.mode", "spec.listeners[].tls.options",
		"spec.listeners[].tls.certificateRefs[].group", "spec.listeners[].tls.certificateRefs[].kind",
		"spec.listeners[].tls.certificateRefs[].name", "spec.listeners[].tls.certificateRefs[].namespace",
		"spec.listeners[].tls.frontendValidation.caCertificateRefs[].group", "spec.listeners[].tls.frontendValidation.caCertificateRefs[].kind",
		"spec.listeners[].tls.frontendValidation.caCertificateRefs[].name", "spec.listeners[].tls.frontendValidation.caCertificateRefs[].namespace",
		"spec.listeners[].allowedRoutes.namespaces.from", "spec.listeners[].allowedRoutes.namespaces.selector.matchLabels",
		"spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].key", "spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].operator",
		"spec.listeners[].allowedRoutes.namespaces.selector.matchExpressions[].values",
		"spec.listeners[].allowedRoutes.kinds[].group", "spec.listeners[].allowedRoutes.kinds[].kind",
	},
}

// TestFieldsHaveEffects edits every field of XBackendTrafficPolicy, XListenerSet, XBackend, XTelemetryPolicy, HTTPFilter, ExternalAuth, session persistence,
// listener filters and the telemetry of BackendTrafficPolicy, one at a time: config or a condition shows it. A field that nobody edits fails the test.
func TestFieldsHaveEffects(t *testing.T) {
	covered := map[string]map[string]bool{} // by kind
	for i, s := range fieldSubjects {
		base := decodeSubject(t, s.object, nil)
		k := base.object["kind"].(string)
		before := s.translate(t, base)
		for _, e := range s.edits {
			t.Run(fmt.Sprintf("%s/%d/%s=%s", k, i, e.field, e.value), func(t *testing.T) {
				edited := decodeSubject(t, s.object, &e)
				if edited.refused != e.refused {
					t.Errorf("today's definition: %v", edited.violations)
				}
				after := s.translate(t, edited)
				what, lines := e.want, linesOnlyIn(after, before)
				if e.gone != "" {
					what, lines = e.gone, linesOnlyIn(before, after)
				}
				if !slices.ContainsFunc(lines, func(line string) bool { return what != "" && strings.Contains(line, what) }) {
					t.Errorf("no line that is new, or gone, has %q:\n%s", what, strings.Join(lines, "\n"))
				}
			})
			if covered[k] == nil {
				covered[k] = map[string]bool{}
			}
			at := listIndex.ReplaceAllString(e.field, "[]")
			for _, part := range strings.Split(e.of, " ") {
				covered[k][at+part] = true
			}
		}
	}
	known := map[string]map[string]bool{}
	for _, of := range fieldsOf {
		if known[of.kind] == nil {
			known[of.kind] = map[string]bool{}
		}
		for _, field := range leaves(of.typ, of.under) {
			known[of.kind][field] = true
			if !covered[of.kind][field] {
				t.Errorf("%s: no edit shows the effect of %s", of.kind, field)
			}
		}
	}
	for k, fields := range covered {
		for field := range fields {
			if !known[k][field] {
				t.Errorf("%s has no field %s", k, field)
			}
		}
	}
	for k, fields := range referenceFields {
		for _, field := range fields {
			if !known[k][field] {
				t.Errorf("%s cannot be read from %s", field, k)
			}
		}
	}
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// leaves are the fields of a type that hold no further fields, each with its path.
func leaves(typ reflect.Type, path string) (all []string) {
	switch typ.Kind() {
	case reflect.Pointer:
		return leaves(typ.Elem(), path)
	case reflect.Slice:
		of := typ.Elem()
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			return leaves(of, path+"[]")
		}
	case reflect.Struct:
		if typ == reflect.TypeFor[metav1.Time]() {
			break
		}
		for _, f := range reflect.VisibleFields(typ) {
			if f.Anonymous || len(f.Index) > 1 && f.Tag.Get("json") == "" {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, leaves(f.Type, path+"."+name)...)
		}
		return all
	}
	return []string{path}
}

// subject is a manifest as an API server would have it.
type subject struct {
	object     map[string]any
	typed      metav1.Object
	refused    bool
	violations []schema.Violation
}

func decodeSubject(t *testing.T, manifest string, e *fieldEdit) subject {
	t.Helper()
	var s subject
	if err := yaml.Unmarshal([]byte(manifest), &s.object); err != nil {
		t.Fatal(err)
	}
	if e != nil {
		var v any
		if err := yaml.Unmarshal([]byte(e.value), &v); err != nil {
			t.Fatal(err)
		}
		s.object = setField(t, s.object, strings.Split(e.field, "."), v).(map[string]any)
	}
	s.object = wholeNumbers(s.object).(map[string]any)
	name := s.object["kind"].(string)
	k := schema.Lookup(s.object["apiVersion"].(string)[strings.Index(s.object["apiVersion"].(string), "/")+1:], name)
	if k == nil {
		t.Fatalf("no definition of %v %s", s.object["apiVersion"], name)
	}
	violations, err := k.Admit(s.object)
	if err != nil {
		t.Fatal(err)
	}
	s.violations, s.refused = violations, len(violations) > 0
	data, err := json.Marshal(s.object)
	if err != nil {
		t.Fatal(err)
	}
	s.typed = kinds[name]()
	if err := yaml.UnmarshalStrict(data, s.typed); err != nil {
		t.Fatal(err)
	}
	if s.typed.GetNamespace() == "" && kind.Of(s.typed).Namespaced {
		s.typed.SetNamespace("default")
	}
	return s
}

// wholeNumbers turns whole numbers into those that a schema is held to.
func wholeNumbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) {
			return int64(v)
		}
	case map[string]any:
		for k, x := range v {
			v[k] = wholeNumbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = wholeNumbers(x)
		}
	}
	return v
}

// setField returns in with a value at a path; what is missing on the way is made. A value of null takes the field away.
func setField(t *testing.T, in any, path []string, v any) any {
	t.Helper()
	if len(path) == 0 {
		return v
	}
	field, index, isList := strings.Cut(path[0], "[")
	m, _ := in.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	switch {
	case isList:
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil {
			t.Fatal(err)
		}
		list, _ := m[field].([]any)
		for len(list) <= i {
			list = append(list, nil)
		}
		list[i] = setField(t, list[i], path[1:], v)
		m[field] = list
	case len(path) == 1 && v == nil:
		delete(m, field)
	default:
		m[field] = setField(t, m[field], path[1:], v)
	}
	return m
}

// translate returns config and statuses of the subject beside its context, and what pods XBackends select.
func (s *fieldSubject) translate(t *testing.T, of subject) string {
	t.Helper()
	w := s.world(t, of, options)
	text := w.printConfig(t) + w.printStatus(t)
	if _, is := of.typed.(*apisx.XBackend); is {
		selectors, err := json.Marshal(s.world(t, of, clusterOptions).selectors)
		if err != nil {
			t.Fatal(err)
		}
		text += string(selectors) + "\n"
	}
	return text
}

func (s *fieldSubject) world(t *testing.T, of subject, o translate.Options) *world {
	t.Helper()
	w := newWorldWith(o)
	for _, doc := range strings.Split(strings.TrimSpace(fieldContext+s.beside), "\n---\n") {
		w.upsert(decode(t, "context", doc))
	}
	w.Upsert(of.typed) // in the place of one of its name
	w.commit(t)
	return w
}

func linesOnlyIn(text, other string) (fresh []string) {
	others := map[string]int{}
	for line := range strings.Lines(other) {
		others[line]++
	}
	for line := range strings.Lines(text) {
		if others[line]--; others[line] < 0 {
			fresh = append(fresh, strings.TrimRight(line, "\n"))
		}
	}
	return fresh
}

// TestStatusFields: every field of the statuses of these kinds is said, but those for which there is nothing to say.
func TestStatusFields(t *testing.T) {
	never := map[string]bool{
		"ancestors[].ancestorRef.sectionName": true, // the Gateway as a whole is the ancestor
		"ancestors[].ancestorRef.port":        true,
	}
	// When a condition has changed is known to who writes it beside the one before: package status.
	unknownHere := func(field string) bool { return strings.HasSuffix(field, "conditions[].lastTransitionTime") }
	said := map[string]map[string]bool{}
	types := map[string]reflect.Type{}
	for _, s := range fieldSubjects {
		subjects := []subject{decodeSubject(t, s.object, nil)}
		for _, e := range s.edits {
			subjects = append(subjects, decodeSubject(t, s.object, &e))
		}
		for _, of := range subjects {
			for k, status := range s.world(t, of, options).statuses {
				if !slices.Contains([]string{"XBackendTrafficPolicy", "XListenerSet", "XBackend", "XTelemetryPolicy"}, k.Kind) {
					continue
				}
				v := reflect.ValueOf(status.Status)
				if types[k.Kind] = v.Type(); said[k.Kind] == nil {
					said[k.Kind] = map[string]bool{}
				}
				setLeaves(v, "", said[k.Kind])
			}
		}
	}
	if len(types) != 4 {
		t.Fatalf("statuses of %v", slices.Sorted(maps.Keys(types)))
	}
	for k, typ := range types {
		for _, field := range leaves(typ, "") {
			field = strings.TrimPrefix(field, ".")
			if want := !never[field] && !unknownHere(field); said[k][field] != want {
				t.Errorf("%s: status.%s is said: %v", k, field, said[k][field])
			}
		}
	}
}

// setLeaves adds the fields that are not zero.
func setLeaves(v reflect.Value, path string, out map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			setLeaves(v.Elem(), path, out)
		}
		return
	case reflect.Slice:
		for i := range v.Len() {
			setLeaves(v.Index(i), path+"[]", out)
		}
		return
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[metav1.Time]() {
			for i := range v.NumField() {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				setLeaves(v.Field(i), strings.TrimPrefix(path+"."+name, "."), out)
			}
			return
		}
	}
	if !v.IsZero() {
		out[path] = true
	}
}
