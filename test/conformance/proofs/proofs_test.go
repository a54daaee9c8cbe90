package proofs

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/conformance.md anew")

// TestPage: the table is complete and true, and the page is what it comes to.
func TestPage(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	supported, err := Supported()
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Check(Fields(), gatewayFeatures(), supported); err != nil {
		t.Fatalf("proofs.yaml:\n%v", err)
	}
	page := table.Page(gatewayFeatures(), supported)
	path := filepath.Join(repository, document)
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page {
		t.Errorf("%s is stale (%v); make conformance-page writes it anew", document, err)
	}
}

// TestCheckRefuses: each way in which a table is wrong is found.
func TestCheckRefuses(t *testing.T) {
	fields, features, supported := []string{"Gateway.spec.gatewayClassName"}, []string{"Gateway"}, []string{"Gateway"}
	const good = proof("golden gatewayclass/unknown")
	row := Row{Field: fields[0], Proofs: []proof{good}}
	feature := Row{Feature: "Gateway", Proofs: []proof{good}}
	if err := (&Table{Features: []Row{feature}, Fields: []Row{row}}).Check(fields, features, supported); err != nil {
		t.Fatalf("a table that is right: %v", err)
	}
	with := func(change func(*Row)) []Row {
		r := row
		change(&r)
		return []Row{r}
	}
	for name, c := range map[string]struct {
		table Table
		want  string
	}{
		"no row":                {Table{}, "Gateway.spec.gatewayClassName: 0 rows, want 1"},
		"two rows":              {Table{Fields: []Row{row, row}}, "2 rows, want 1"},
		"no field":              {Table{Fields: with(func(r *Row) { r.Field = "Gateway.spec.color" })}, "Gateway.spec.color: there is no such field"},
		"a brace":               {Table{Fields: with(func(r *Row) { r.Field = "Gateway.{spec" })}, "a brace is not closed"},
		"a subtree":             {Table{Fields: with(func(r *Row) { r.Field = "Gateway.spec.**" })}, "only what is not supported may have .**"},
		"no proof":              {Table{Fields: with(func(r *Row) { r.Proofs = nil })}, "no proof"},
		"an odd proof":          {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"hope springs"} })}, "a proof is one of"},
		"no golden case":        {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"golden no/such"} })}, "no such file"},
		"a case that sets else": {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"golden gatewayclass/accepted"} })}, "golden gatewayclass/accepted does not set Gateway.spec.gatewayClassName"},
		"no Go test":            {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"test internal/e2e.TestNothing"} })}, "no test TestNothing"},
		"no official test":      {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"suite Nothing"} })}, "the suite has no test Nothing"},
		"a test that is not run": {Table{Fields: with(func(r *Row) { r.Proofs = []proof{"suite TLSRouteSimpleSameNamespace"} })},
			"TLSRouteSimpleSameNamespace is not run: TLSRoute is not supported"},
		"a feature that is claimed": {Table{Features: []Row{{Feature: "Gateway", NotSupported: "nothing", Proofs: []proof{good}}}}, "the GatewayClass says that it is supported"},
		"no feature":                {Table{Features: []Row{{Feature: "Odd", Proofs: []proof{good}}}}, "Odd: no feature of a gateway"},
	} {
		if err := c.table.Check(fields, features, supported); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := (&Table{Fields: []Row{row}}).Check(fields, features, nil); err == nil || !strings.Contains(err.Error(), "does not say that it is supported") {
		t.Errorf("a feature that is not claimed: %v", err)
	}
}

func TestExpand(t *testing.T) {
	for pattern, want := range map[string][]string{
		"a":                  {"a"},
		"a.{b,c}":            {"a.b", "a.c"},
		"{a,b}.{c,d}":        {"a.c", "a.d", "b.c", "b.d"},
		"{{set,add}.n,del}":  {"set.n", "add.n", "del"},
		"x.{a.{b,c.{d}},e}z": {"x.a.bz", "x.a.c.dz", "x.ez"},
	} {
		if got, err := expand(pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", pattern, got, err, want)
		}
	}
}

// TestFields: fields of structs below others are there, once, and no others.
func TestFields(t *testing.T) {
	fields := Fields()
	for _, field := range []string{
		"GatewayClass.spec.controllerName", "Gateway.spec.listeners.allowedRoutes.namespaces.selector", "Gateway.status.conditions",
		"HTTPRoute.spec.parentRefs.port", "GRPCRoute.spec.rules.backendRefs.weight", "BackendTLSPolicy.status.ancestors.ancestorRef.name", "ReferenceGrant.spec.to.name",
	} {
		if !slices.Contains(fields, field) {
			t.Errorf("%s is not among them", field)
		}
	}
	if all := slices.Compact(slices.Sorted(slices.Values(fields))); len(all) != len(fields) {
		t.Errorf("%d fields, %d of them different", len(fields), len(all))
	}
}
