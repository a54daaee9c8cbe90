package schema

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/kind"
)

func TestCRDsAreThoseOfTheModule(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/experimental", gwv1.GroupName+"_*s.yaml"))
	if err != nil || len(theirs) == 0 {
		t.Fatalf("no CRDs in the module: %v", err)
	}
	for _, plural := range []string{"xbackends", "xtelemetrypolicies"} {
		theirs = append(theirs, filepath.Join(strings.TrimSpace(string(out)), "config/crd/experimental/gateway.networking.x-k8s.io_"+plural+".yaml"))
	}
	theirs = slices.DeleteFunc(theirs, func(p string) bool { return strings.Contains(p, "_vap_") })
	ours, err := crds.ReadDir("crds")
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d CRDs here, %d in the module: run go generate", len(ours), len(theirs))
	}
	for _, path := range theirs {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := crds.ReadFile("crds/" + filepath.Base(path)); err != nil || string(got) != string(want) {
			t.Errorf("%s differs from the module's (%v): run go generate", filepath.Base(path), err)
		}
	}
}

func TestKindsAreThoseOfTheCRDs(t *testing.T) {
	native := 0
	for _, k := range kind.All() {
		if !k.Custom {
			continue
		}
		crd, err := readCRD(k.Group, k.Resource)
		if err != nil {
			t.Error(err)
			continue
		}
		var served []string
		for _, v := range crd.Spec.Versions {
			if v.Served {
				served = append(served, v.Name)
			}
		}
		slices.Sort(served)
		if got := slices.Sorted(slices.Values(k.Versions)); crd.Spec.Group != k.Group || crd.Spec.Names.Kind != k.Name ||
			(crd.Spec.Scope == "Namespaced") != k.Namespaced || !slices.Equal(got, served) {
			t.Errorf("%s is not the CRD: %s %s, versions %v", k.Name, crd.Spec.Names.Kind, crd.Spec.Scope, served)
		}
		if _, err := crds.ReadFile("crds/" + k.Group + "_" + k.Resource + ".yaml"); err == nil {
			native++
		}
	}
	if files, _ := fs.Glob(crds, "crds/*.yaml"); len(files) != native {
		t.Errorf("%d CRDs, %d kinds", len(files), native)
	}
}

func TestEveryVersionCompiles(t *testing.T) {
	for name := range kinds {
		for _, k := range kinds[name] {
			if _, err := k.compile(); err != nil {
				t.Errorf("%s %s: %v", name, k.Version, err)
			}
		}
	}
	if Lookup("v2", "Gateway") != nil || Lookup("v1", "Pod") != nil {
		t.Error("a kind that does not exist was found")
	}
}

// object reads YAML with whole numbers as int64.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

const fullRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gw}, {name: other, sectionName: http}]
  hostnames: [a.example.com, "*.example.org"]
  rules:
  - name: one
    matches:
    - path: {type: PathPrefix, value: /a}
      headers: [{name: x, value: v}]
      queryParams: [{name: q, value: z}]
    - path: {type: Exact, value: /b}
      method: GET
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}
    - {type: RequestMirror, requestMirror: {backendRef: {name: m, port: 80}, percent: 10}}
    backendRefs:
    - {name: s, port: 80, weight: 9}
    - {name: s2, port: 81, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: a, value: b}]}}]}
    timeouts: {request: 10s, backendRequest: 5s}
  - matches: [{path: {type: PathPrefix, value: /r}}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}]
  - matches: [{path: {type: PathPrefix, value: /w}}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: b.example.com, path: {type: ReplaceFullPath, replaceFullPath: /x}}}]
    backendRefs: [{name: s, port: 80}]
`

const fullGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: moongate
  addresses: [{type: IPAddress, value: 127.0.0.1}, {type: Hostname, value: gw.example.com}]
  infrastructure: {labels: {a: b}, annotations: {example.com/x: z}}
  listeners:
  - {name: http, port: 80, protocol: HTTP, hostname: "*.example.com"}
  - {name: https, port: 443, protocol: HTTPS, tls: {mode: Terminate, certificateRefs: [{name: cert}]}}
  - {name: tls, port: 8443, protocol: TLS, tls: {mode: Passthrough}}
  - {name: tcp, port: 9000, protocol: TCP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}}}
`

func TestAdmitSetsDefaults(t *testing.T) {
	obj := object(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web, labels: {a: b}}, spec: {parentRefs: [{name: gw}], rules: [{backendRefs: [{name: s, port: 80}], filters: null}]}}`)
	found, err := Lookup("v1", "HTTPRoute").Admit(obj)
	if err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	want := object(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: web, labels: {a: b}}, spec: {
		parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}],
		rules: [{matches: [{path: {type: PathPrefix, value: /}}], backendRefs: [{group: "", kind: Service, name: s, port: 80, weight: 1}]}]}}`)
	if !reflect.DeepEqual(obj, want) {
		t.Errorf("got  %v\nwant %v", obj, want)
	}
	gw := object(t, fullGateway)
	if found, err := Lookup("v1", "Gateway").Admit(gw); err != nil || len(found) > 0 {
		t.Fatal(found, err)
	}
	conditions, _ := gw["status"].(map[string]any)["conditions"].([]any)
	if len(conditions) != 2 || conditions[0].(map[string]any)["reason"] != "Pending" {
		t.Errorf("a Gateway's status is %v, not the CRD's default", gw["status"])
	}
}

func TestAdmitNamesWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		kind, spec string
		want       []Violation
	}{
		{"HTTPRoute", `{rulez: []}`, []Violation{{"spec.rulez", "unknown field", `did you mean "rules"?`}}},
		{"HTTPRoute", `{rules: [{matches: [{path: {typ: Exact}}]}]}`, []Violation{{"spec.rules[0].matches[0].path.typ", "unknown field", `did you mean "type"?`}}},
		{"HTTPRoute", `{rules: [{matches: [{path: {zzzz: 1}}]}]}`, []Violation{{"spec.rules[0].matches[0].path.zzzz", "unknown field", "remove it; the fields here are type, value"}}},
		{"HTTPRoute", `{rules: [{sessionPersistence: {sessionName: pin}}]}`, []Violation{
			{"spec.rules[0].sessionPersistence", "cookie must be specified for Cookie type", `add "cookie"`},
			{"spec.rules[0].sessionPersistence.sessionName", "unknown field", `write "cookie.name" in its place, or "header.name" with "type: Header"`}}},
		{"HTTPRoute", `{rules: [{sessionPersistence: {cookieConfig: {lifetimeType: Session}}}]}`, []Violation{
			{"spec.rules[0].sessionPersistence", "cookie must be specified for Cookie type", `add "cookie"`},
			{"spec.rules[0].sessionPersistence.cookieConfig", "unknown field", `write "cookie" in its place`}}},
		{"HTTPRoute", `{parentRefs: {nane: gw}}`, []Violation{{"spec.parentRefs", "is an object, must be a list", `write a list (lines that begin with "- ")`}}},
		{"HTTPRoute", `{hostnames: [true]}`, []Violation{{"spec.hostnames[0]", "is the boolean true, must be a string", `put it in quotes: "true"`}}},
		{"HTTPRoute", `{rules: [{timeouts: {request: 1x, backendRequest: 1s}}]}`, []Violation{{"spec.rules[0].timeouts.request", `"1x" must match '^([0-9]{1,5}(h|m|s|ms)){1,4}$'`, "write a duration such as 10s, 1m30s or 500ms"}}},
		{"HTTPRoute", `{rules: [{timeouts: {request: 1s, backendRequest: 2s}}]}`, []Violation{{"spec.rules[0].timeouts", "backendRequest timeout cannot be longer than request timeout", `shorten "backendRequest" or lengthen "request"`}}},
		{"HTTPRoute", `{rules: [{filters: [{type: CORS, urlRewrite: {}}]}]}`, []Violation{
			{"spec.rules[0].filters[0]", "filter.cors must be specified for CORS filter.type", `add "cors", or change "type: CORS"`},
			{"spec.rules[0].filters[0]", "filter.urlRewrite must be nil if the filter.type is not URLRewrite", `set "type: URLRewrite", or remove "urlRewrite"`}}},
		{"HTTPRoute", `{rules: [{backendRefs: [{name: s, port: 80, weight: -1}]}]}`, []Violation{{"spec.rules[0].backendRefs[0].weight", "-1 must be greater than or equal to 0", "use a number greater than or equal to 0"}}},
		{"HTTPRoute", `{rules: [` + strings.Repeat("{},", 17) + `]}`, []Violation{{"spec.rules", "has 17, and may have at most 16 items", "remove some"}}},
		{"HTTPRoute", `{hostnames: [` + strings.Repeat("a", 300) + `]}`, []Violation{{"spec.hostnames[0]", "too long (at most 253 bytes)", "shorten it (at most 253 bytes)"}}},
		{"Gateway", `{gatewayClassName: m}`, []Violation{{"spec.listeners", "required field is missing", `add "listeners"`}}},
		{"Gateway", `{gatewayClassName: "", listeners: [{name: a, port: 80, protocol: HTTP}]}`, []Violation{{"spec.gatewayClassName", `"" must be at least 1 chars long`, "write at least 1 character(s)"}}},
		{"Gateway", `{gatewayClassName: m, listeners: []}`, []Violation{{"spec.listeners", "must have at least 1 items", "add entries until there are at least 1, or remove the field"}}},
		{"Gateway", `{gatewayClassName: m, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Any}}}]}`, []Violation{{"spec.listeners[0].allowedRoutes.namespaces.from", `unsupported value "Any"`, "use one of All, Same, Selector"}}},
		{"Gateway", `{gatewayClassName: m, infrastructure: {labels: {a.b/c: 1}}, listeners: [{name: a, port: 80, protocol: HTTP}]}`, []Violation{{"spec.infrastructure.labels.a.b/c", "is the number 1, must be a string", `put it in quotes: "1"`}}},
		{"ReferenceGrant", `{from: [{group: g, kind: K, namespace: ns}], to: []}`, []Violation{{"spec.to", "must have at least 1 items", "add entries until there are at least 1, or remove the field"}}},
	} {
		obj := object(t, `{apiVersion: gateway.networking.k8s.io/v1, kind: `+test.kind+`, metadata: {name: x}, spec: `+test.spec+`}`)
		found, err := Lookup("v1", test.kind).Admit(obj)
		slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(a.Message, b.Message) })
		if err != nil || !reflect.DeepEqual(found, test.want) {
			t.Errorf("%s %s: %v\ngot  %q\nwant %q", test.kind, test.spec, err, found, test.want)
		}
	}
}

// TestRulesAgreeWithTheValidator changes valid objects at random and compares.
func TestRulesAgreeWithTheValidator(t *testing.T) {
	for _, base := range []struct{ kind, text string }{{"HTTPRoute", fullRoute}, {"Gateway", fullGateway}} {
		r, err := Lookup("v1", base.kind).compile()
		if err != nil {
			t.Fatal(err)
		}
		held, broken := 0, 0
		for seed := range uint64(500) {
			obj := object(t, base.text)
			random := rand.New(rand.NewPCG(seed, 7))
			for range random.IntN(4) {
				mutate(random, obj["spec"])
			}
			defaulting.Default(obj, r.structural)
			errs, _ := r.validator().Validate(context.Background(), nil, r.structural, obj, nil, celconfig.RuntimeCELCostBudget)
			if holds := r.cel.satisfied(context.Background(), obj); holds != (len(errs) == 0) {
				t.Fatalf("%s, seed %d: rules hold: %v; validator: %v\n%v", base.kind, seed, holds, errs, obj)
			}
			if len(errs) == 0 {
				held++
			} else {
				broken++
			}
		}
		if held < 60 || broken < 60 {
			t.Errorf("%s: %d valid and %d invalid objects are no test", base.kind, held, broken)
		}
	}
}

// mutate changes one thing somewhere below v.
func mutate(r *rand.Rand, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) == 0 {
			return
		}
		k := keys[r.IntN(len(keys))]
		switch child := v[k].(type) {
		case string:
			v[k] = []string{"", "x", "/y//", child + "z", "HTTPS", "PathPrefix", "30s"}[r.IntN(7)]
		case int64:
			v[k] = int64(r.IntN(500))
		default:
			if r.IntN(5) == 0 {
				delete(v, k)
			} else {
				mutate(r, child)
			}
		}
	case []any:
		if len(v) > 1 && r.IntN(3) == 0 {
			v[0] = v[1]
		} else if len(v) > 0 {
			mutate(r, v[r.IntN(len(v))])
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"matches", "filters", "backendRefs", "timeouts", "name"}
	for name, want := range map[string]string{
		"match": "matches", "Matches": "matches", "fliters": "filters", "backendrefs": "backendRefs", "backendRef": "backendRefs",
		"nam": "name", "zone": "", "x": "", "": "", "timeout": "timeouts", "names": "name", "matchs": "matches", "Refs": "backendRefs",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestUnsupportedSuggests checks the suggestion for a value of an enumeration that shares only its beginning with what was meant.
func TestUnsupportedSuggests(t *testing.T) {
	for value, want := range map[string]string{
		"LeastConnection": "did you mean LeastRequest? Use one of ", "LEAST_CONN": "did you mean LeastRequest? Use one of ", "round-robin": "did you mean RoundRobin? Use one of ",
		"Ring": "use one of ", "Lea": "use one of ",
	} {
		allowed := []string{"ConsistentHash", "LeastRequest", "Random", "RoundRobin"}
		if got := Unsupported("spec.type", value, allowed).Remedy; got != want+"ConsistentHash, LeastRequest, Random, RoundRobin" {
			t.Errorf("%s: %q", value, got)
		}
	}
	if got := Unsupported("scheme", "HTTPS", []string{"http", "https"}).Remedy; got != "did you mean https? Use one of http, https" {
		t.Errorf("of a scheme: %q", got)
	}
	if got := sameStart("Local1", []string{"LocalA", "LocalB"}); got != "" {
		t.Errorf("of two candidates: %q", got)
	}
}

// TestRemediesAreOfUse: each rule of a CRD has a remedy of its own, and each
// remedy is for something.
func TestRemediesAreOfUse(t *testing.T) {
	messages := map[string]bool{}
	for name := range kinds {
		for _, k := range kinds[name] {
			r, err := k.compile()
			if err != nil {
				t.Fatal(err)
			}
			collectMessages(r.structural, messages)
		}
	}
	for m := range messages {
		if got := remedy(m, m); strings.HasPrefix(got, "change the field") {
			t.Errorf("no remedy for %q", m)
		}
	}
	if len(messages) < 80 {
		t.Errorf("only %d rules found", len(messages))
	}
}

func collectMessages(s *structural.Structural, into map[string]bool) {
	for _, r := range s.XValidations {
		into[r.Message] = true
	}
	for _, p := range s.Properties {
		collectMessages(&p, into)
	}
	if s.Items != nil {
		collectMessages(s.Items, into)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		collectMessages(s.AdditionalProperties.Structural, into)
	}
}

func BenchmarkAdmitHTTPRoute(b *testing.B) {
	k := Lookup("v1", "HTTPRoute")
	objs := make([]map[string]any, 256)
	for i := range objs {
		objs[i] = object(b, strings.Replace(fullRoute, "name: web", fmt.Sprintf("name: web-%d", i), 1))
	}
	if found, err := k.Admit(objs[0]); err != nil || len(found) > 0 {
		b.Fatal(found, err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := k.Admit(objs[i%len(objs)]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestElementsCostNoMoreThanTheList: to find the elements that break rules of their list costs in proportion to its length, as CEL counts, and no more than
// evaluating the object may.
func TestElementsCostNoMoreThanTheList(t *testing.T) {
	r, err := Lookup("v1", "Gateway").compile()
	if err != nil {
		t.Fatal(err)
	}
	judge := func(n int, budget int64) (named, whole int, spent int64) {
		var listeners []any
		for i := range n {
			listeners = append(listeners, map[string]any{"name": fmt.Sprintf("l%d", i), "port": int64(80 + i), "protocol": "HTTP", "tls": map[string]any{"mode": "Terminate"}})
		}
		obj := map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"gatewayClassName": "c", "listeners": listeners}}
		left := budget
		broken, _ := r.validator().Validate(t.Context(), nil, r.structural, obj, nil, celconfig.RuntimeCELCostBudget)
		for _, e := range broken {
			for _, of := range ofElements(t.Context(), e, obj, r.cel, &left) {
				if of.Field == "spec.listeners" {
					whole++
				} else if strings.HasPrefix(of.Field, "spec.listeners[") {
					named++
				}
			}
		}
		return named, whole, budget - left
	}
	few, whole, little := judge(16, celconfig.RuntimeCELCostBudget)
	many, _, much := judge(64, celconfig.RuntimeCELCostBudget)
	if few%16 != 0 || few == 0 || many != 4*few || whole != 0 || little == 0 || much > 5*little {
		t.Errorf("%d of 16 and %d of 64 listeners are named (%d times the list), for a cost of %d and %d", few, many, whole, little, much)
	}
	if named, whole, spent := judge(64, little); named >= many || whole == 0 || spent > little {
		t.Errorf("with a budget of %d: %d listeners are named and %d times the list, for a cost of %d", little, named, whole, spent)
	}
}
