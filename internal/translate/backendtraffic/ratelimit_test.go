package backendtraffic

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// specOf reads a spec in YAML.
func specOf(t testing.TB, text string) *eg.BackendTrafficPolicySpec {
	t.Helper()
	var s eg.BackendTrafficPolicySpec
	if err := yaml.Unmarshal([]byte(text), &s); err != nil || s.Unread != (eg.Unread{}) {
		t.Fatalf("%s: %v %+v", text, err, s.Unread)
	}
	return &s
}

// problemOf is what is wrong with a spec, "" for nothing.
func problemOf(t testing.TB, text string) string {
	t.Helper()
	if _, p := Compile(specOf(t, text), "BackendTrafficPolicy n/p", "n/p", nil); p != nil {
		return p.String()
	}
	return ""
}

// TestRefusedFields: what Envoy alone could carry out is refused by its name.
func TestRefusedFields(t *testing.T) {
	limit := func(scope, rest string) string {
		return "rateLimit: {" + scope + ": {rules: [{" + rest + "}]}}"
	}
	const cost = "limit: {requests: 1, unit: Hour}, cost: {%s: {from: Metadata, metadata: {namespace: a, key: b}}}"
	for field, spec := range map[string]string{
		"spec.loadBalancer.dynamicModule":                   "loadBalancer: {type: DynamicModule, dynamicModule: {name: m}}",
		"spec.connection.preconnect.predictivePercent":      "connection: {preconnect: {predictivePercent: 150}}",
		"spec.http2.onInvalidMessage":                       "http2: {onInvalidMessage: TerminateStream}",
		"spec.rateLimit.global.rules[0].limit.fromMetadata": limit("global", "limit: {requests: 1, unit: Hour, fromMetadata: {namespace: a, key: b}}"),
		"spec.rateLimit.local.rules[0].limit.fromMetadata":  limit("local", "limit: {requests: 1, unit: Hour, fromMetadata: {namespace: a, key: b}}"),
		"spec.rateLimit.global.rules[0].cost.request":       limit("global", fmt.Sprintf(cost, "request")),
		"spec.rateLimit.global.rules[0].cost.response":      limit("global", fmt.Sprintf(cost, "response")),
		"spec.rateLimit.local.rules[0].cost.request":        limit("local", fmt.Sprintf(cost, "request")),
		"spec.rateLimit.local.rules[0].cost.response":       limit("local", "limit: {requests: 1, unit: Hour}, cost: {response: {from: Number, number: 1}}"),
	} {
		if got := problemOf(t, spec); !strings.HasPrefix(got, field+": ") || !strings.Contains(got, "; ") {
			t.Errorf("%s: %q does not begin with the field, or has no remedy", field, got)
		}
	}
}

// TestTrailerPrefix: names of trailers are bounded.
func TestTrailerPrefix(t *testing.T) {
	spec := func(length int) string {
		return "bandwidthLimit: {response: {limit: {value: 1Mi, unit: Second}, responseTrailers: {prefix: " + strings.Repeat("p", length) + "}}}"
	}
	if got := problemOf(t, spec(64)); got != "" {
		t.Errorf("64 characters: %s", got)
	}
	if got := problemOf(t, spec(65)); !strings.HasPrefix(got, "spec.bandwidthLimit.response.responseTrailers.prefix: ") || !strings.Contains(got, "at most 64") {
		t.Errorf("65 characters: %q", got)
	}
}

// TestExpressionsAfterProblem: a policy that is refused already has none of its further expressions parsed.
func TestExpressionsAfterProblem(t *testing.T) {
	r := &reader{out: &Compiled{}}
	r.expression("a+", "first")
	before := r.expressions
	if before == 0 {
		t.Fatal("an expression has no size")
	}
	r.invalid("field", "remedy", "wrong")
	r.expression("b+", "second")
	if r.expressions != before {
		t.Errorf("an expression was parsed after a problem: size %d, before %d", r.expressions, before)
	}
	rules := strings.Repeat("- {limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x, type: RegularExpression, value: a+}]}]}\n", 10)
	spec := specOf(t, "rateLimit:\n  global:\n    rules:\n"+strings.ReplaceAll("- {limit: {requests: 1, unit: Fortnight}}\n"+rules, "- {", "    - {"))
	r = &reader{out: &Compiled{}}
	r.rateLimit(spec.RateLimit, "n/p")
	if r.problem == nil || !strings.Contains(r.problem.Field, "rules[0].limit.unit") || r.expressions != 0 {
		t.Errorf("%v, expressions of size %d were parsed", r.problem, r.expressions)
	}
}

// TestConditionsOfPolicy: a policy has a bounded number of conditions, of all rules together.
func TestConditionsOfPolicy(t *testing.T) {
	spec := func(conditions int) string {
		var b strings.Builder
		b.WriteString("rateLimit:\n  local:\n    rules:\n")
		for at := 0; at < conditions; at += 100 {
			b.WriteString("    - limit: {requests: 1, unit: Hour}\n      clientSelectors:\n      - headers:\n")
			for i := at; i < min(at+100, conditions); i++ {
				fmt.Fprintf(&b, "        - {name: x%d, value: v}\n", i)
			}
		}
		return b.String()
	}
	if got := problemOf(t, spec(1000)); got != "" {
		t.Errorf("1000 conditions: %s", got)
	}
	if got := problemOf(t, spec(1001)); !strings.HasPrefix(got, "spec.rateLimit.local.rules[10].clientSelectors[0]: ") || !strings.Contains(got, "1000") {
		t.Errorf("1001 conditions: %q", got)
	}
}

// TestMeet: as many global limits as one request can meet are bounded; those that exclude each other are not met together.
func TestMeet(t *testing.T) {
	for name, c := range map[string]struct {
		rules string // with the number of the rule for %d
		few   bool
	}{
		"all requests":               {"{limit: {requests: %d, unit: Hour}}", false},
		"headers":                    {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x-tenant, value: t%d}]}]}", true},
		"headers, inverted":          {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x-tenant, value: t%d, invert: true}]}]}", false},
		"several headers":            {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x-%d, value: t}]}]}", false},
		"expressions":                {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x, type: RegularExpression, value: t%d}]}]}", false},
		"distinct values":            {"{limit: {requests: %d, unit: Hour}, clientSelectors: [{headers: [{name: x, type: Distinct}]}]}", false},
		"query parameters":           {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{queryParams: [{name: tenant, value: t%d}]}]}", true},
		"paths":                      {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{path: {type: Exact, value: /%d}}]}", true},
		"prefixes":                   {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{path: {value: /%d}}]}", false},
		"clients":                    {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{sourceCIDR: {value: 192.0.2.%d/32}}]}", true},
		"ranges that overlap":        {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{sourceCIDR: {value: '2001:db8::/%d'}}]}", false},
		"methods":                    {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{methods: [{value: M%d}]}]}", true},
		"several methods":            {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{methods: [{value: M%d}, {value: GET}]}]}", false},
		"headers beside other rules": {"{limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x-tenant, value: t%d}], methods: [{value: GET}]}]}", true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := func(n int) string {
				var b strings.Builder
				b.WriteString("rateLimit:\n  global:\n    rules:\n")
				for i := range n {
					fmt.Fprintf(&b, "    - "+c.rules+"\n", i+1)
				}
				return b.String()
			}
			if got := problemOf(t, spec(32)); got != "" {
				t.Errorf("32 rules: %s", got)
			}
			got := problemOf(t, spec(64))
			if c.few && got != "" {
				t.Errorf("64 rules: %s", got)
			}
			if !c.few && (!strings.HasPrefix(got, "spec.rateLimit.global.rules: one request may meet 64 ") || !strings.Contains(got, "exclude each other")) {
				t.Errorf("64 rules: %q", got)
			}
		})
	}
	of := func(n int, header string) (all []*config.RateLimit) {
		for i := range n {
			l := &config.RateLimit{}
			if header != "" {
				l.HeaderFields = []*config.RateLimitValue{{Name: header, Value: fmt.Sprint(i)}}
			}
			all = append(all, l)
		}
		return all
	}
	if got := meet(append(of(10, "x"), of(5, "")...)); got != 6 {
		t.Errorf("of 10 that exclude each other and 5 others a request meets %d, want 6", got)
	}
	if got := meet(append(of(10, "x"), of(10, "x")...)); got != 2 {
		t.Errorf("of two times 10 that exclude each other a request meets %d, want 2", got)
	}
	// The same addresses in IPv4 and mapped to IPv6.
	mapped := []*config.RateLimit{
		{Sources: []*config.RateLimitSource{{Cidr: "10.0.0.0/8"}}},
		{Sources: []*config.RateLimitSource{{Cidr: "::ffff:10.1.0.0/112"}}},
		{Sources: []*config.RateLimitSource{{Cidr: "::ffff:11.0.0.0/104"}}},
	}
	if got := meet(mapped); got != 2 {
		t.Errorf("of two ranges of which one has the other, and a third, a request meets %d, want 2", got)
	}
}

// TestTypeOfRateLimit: type selects among a policy's own limits, what is not in force is noted, and the type is not merged.
func TestTypeOfRateLimit(t *testing.T) {
	const local, global = "local: {rules: [{limit: {requests: %d, unit: Hour}}]}", "global: {rules: [{limit: {requests: %d, unit: Hour}}]}"
	both := func(n int) string { return fmt.Sprintf(local+", "+global, n, n+1) }
	for _, c := range []struct {
		spec          string
		local, global int // requests, 0 for none
		note          string
	}{
		{"rateLimit: {" + both(1) + "}", 1, 2, ""},
		{"rateLimit: {type: Local, " + both(1) + "}", 1, 0, "spec.rateLimit.global: it is not in force"},
		{"rateLimit: {type: Global, " + both(1) + "}", 0, 2, "spec.rateLimit.local: it is not in force"},
		{"rateLimit: {type: Global, " + fmt.Sprintf(local, 1) + "}", 0, 0, "spec.rateLimit.local: it is not in force"},
		{"rateLimit: {type: Local}", 0, 0, ""},
	} {
		compiled, p := Compile(specOf(t, c.spec), "", "n/p", nil)
		if p != nil {
			t.Errorf("%s: %v", c.spec, p)
			continue
		}
		l, g := requestsOf(compiled.Rule.Traffic.RateLimits)
		if l != c.local || g != c.global {
			t.Errorf("%s: local %d and global %d are in force, want %d and %d", c.spec, l, g, c.local, c.global)
		}
		var notes []string
		for _, n := range compiled.Notes {
			notes = append(notes, n.String())
		}
		if got := strings.Join(notes, "\n"); (got == "") != (c.note == "") || !strings.HasPrefix(got, c.note) {
			t.Errorf("%s: noted is %q, want %q", c.spec, got, c.note)
		}
	}
	if got := problemOf(t, "rateLimit: {type: Both}"); !strings.HasPrefix(got, "spec.rateLimit.type: ") {
		t.Errorf("a type that is not known: %q", got)
	}
	for _, c := range []struct {
		child, parent string
		local         int
	}{
		{"{type: Local}", "{" + both(1) + "}", 1},
		{"{type: Global}", "{" + both(1) + "}", 1},
		{"{" + fmt.Sprintf(local, 5) + "}", "{type: Global, " + both(1) + "}", 5},
		{"{" + fmt.Sprintf(global, 5) + "}", "{type: Global, " + both(1) + "}", 0}, // the local limits of the parent are not in force for it either
		{"{type: Local, " + both(5) + "}", "{type: Global, " + both(1) + "}", 5},
		{"{local: {rules: []}}", "{" + both(1) + "}", 1},
	} {
		for _, merge := range []string{"StrategicMerge", "JSONMerge"} {
			child := specOf(t, "mergeType: "+merge+"\nrateLimit: "+c.child)
			merged, err := Merge(child, specOf(t, "rateLimit: "+c.parent))
			if err != nil {
				t.Fatal(err)
			}
			compiled, p := Compile(merged, "", "n/p", nil)
			if p != nil {
				t.Fatal(p)
			}
			if l, _ := requestsOf(compiled.Rule.Traffic.RateLimits); l != c.local {
				t.Errorf("%s of %s onto %s: local %d is in force, want %d", merge, c.child, c.parent, l, c.local)
			}
			if own := c.local == 5; HasLocalLimits(&child.Settings) != own {
				t.Errorf("%s has local limits: %v, want %v", c.child, !own, own)
			}
		}
	}
}

// requestsOf are those of the first local and global limit.
func requestsOf(l *config.RateLimits) (local, global int) {
	if all := l.GetLocal(); len(all) > 0 {
		local = int(all[0].Requests)
	}
	if all := l.GetGlobal(); len(all) > 0 {
		global = int(all[0].Requests)
	}
	return local, global
}
