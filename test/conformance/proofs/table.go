package proofs

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"
)

//go:embed proofs.yaml
var written []byte

// Table is what proofs.yaml holds.
type Table struct {
	Features  []Row
	Fields    []Row
	Decisions []Decision
}

// Row is a feature, or the fields that a pattern names, and what proves them.
type Row struct {
	Feature, Field string // one of them; Field may have {a,b}, and .** at its end
	NotSupported   string // what a user sees instead; "" where it is supported
	Proofs         []proof
}

// Decision is what is done where the specification says two things.
type Decision struct {
	Topic, Says, And, Taken string
	Proofs                  []proof
}

// Load returns the table that is written.
func Load() (*Table, error) {
	t := &Table{}
	return t, yaml.UnmarshalStrict(written, t)
}

// Supported are the features that the GatewayClass names in a cluster, by the golden case that holds them.
func Supported() ([]string, error) {
	const class = "internal/translate/testdata/cluster/parameters-of-class.yaml"
	text, err := os.ReadFile(filepath.Join(repository, class))
	if err != nil {
		return nil, err
	}
	_, list, found := strings.Cut(string(text), "supportedFeatures:\n")
	var out []string
	for line := range strings.Lines(list) {
		name, item := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !item || strings.HasSuffix(name, ":") {
			break
		}
		out = append(out, name)
	}
	if !found || len(out) == 0 {
		return nil, fmt.Errorf("%s has no supportedFeatures", class)
	}
	return out, nil
}

// gatewayFeatures are the names of all features but those of meshes, sorted.
func gatewayFeatures() []string {
	mesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	var out []string
	for f := range features.AllFeatures {
		if !mesh.Has(f.Name) {
			out = append(out, string(f.Name))
		}
	}
	slices.Sort(out)
	return out
}

// officialProofs are the tests of the suite that are run because of a feature.
func officialProofs(feature string, supported []string) (out []proof) {
	for _, t := range tests.ConformanceTests {
		p := proof(official + " " + t.ShortName)
		if slices.Contains(t.Features, features.FeatureName(feature)) && p.check(supported) == nil {
			out = append(out, p)
		}
	}
	return out
}

// Check reports features and fields without a row and rows without them, and proofs that are none.
func (t *Table) Check(fields, features, supported []string) error {
	var errs []error
	for _, row := range slices.Concat(t.Features, t.Fields) {
		if len(row.Proofs) == 0 {
			errs = append(errs, fmt.Errorf("%s%s: no proof", row.Feature, row.Field))
		}
		errs = append(errs, checkProofs(row.Proofs, supported))
	}
	for _, d := range t.Decisions {
		errs = append(errs, checkProofs(d.Proofs, supported))
	}
	return errors.Join(append(errs, t.checkFeatures(features, supported), t.checkFields(fields))...)
}

func checkProofs(proofs []proof, supported []string) error {
	var errs []error
	for _, p := range proofs {
		errs = append(errs, p.check(supported))
	}
	return errors.Join(errs...)
}

func (t *Table) checkFeatures(all, supported []string) error {
	var errs []error
	rows := map[string]Row{}
	for _, row := range t.Features {
		if _, twice := rows[row.Feature]; twice || !slices.Contains(all, row.Feature) {
			errs = append(errs, fmt.Errorf("%s: no feature of a gateway, or it has two rows", row.Feature))
		}
		rows[row.Feature] = row
	}
	for _, f := range all {
		row, claimed := rows[f], slices.Contains(supported, f)
		switch {
		case claimed && row.NotSupported != "":
			errs = append(errs, fmt.Errorf("%s: the GatewayClass says that it is supported", f))
		case !claimed && row.NotSupported == "":
			errs = append(errs, fmt.Errorf("%s: the GatewayClass does not say that it is supported", f))
		case claimed && len(row.Proofs)+len(officialProofs(f, supported)) == 0:
			errs = append(errs, fmt.Errorf("%s: no proof", f))
		}
	}
	return errors.Join(errs...)
}

func (t *Table) checkFields(all []string) error {
	var errs []error
	rows := map[string]int{} // field -> how many rows
	for _, row := range t.Fields {
		patterns, err := expand(row.Field)
		errs = append(errs, err)
		for _, pattern := range patterns {
			prefix, subtree := strings.CutSuffix(pattern, ".**")
			if subtree && row.NotSupported == "" {
				errs = append(errs, fmt.Errorf("%s: only what is not supported may have .**", row.Field))
			}
			found := false
			for _, field := range all {
				if field == prefix || subtree && strings.HasPrefix(field, prefix+".") {
					rows[field]++
					found = true
				}
			}
			if !found {
				errs = append(errs, fmt.Errorf("%s: there is no such field", pattern))
			}
			errs = append(errs, provedBySome(prefix, row.Proofs))
		}
	}
	for _, field := range all {
		if rows[field] != 1 {
			errs = append(errs, fmt.Errorf("%s: %d rows, want 1", field, rows[field]))
		}
	}
	return errors.Join(errs...)
}

// provedBySome reports that there are cases among the proofs, and none of them sets the field.
func provedBySome(field string, proofs []proof) error {
	var errs []error
	for _, p := range proofs {
		if what, _ := p.split(); what != golden && what != request {
			continue
		}
		err := p.checkSets(field)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
