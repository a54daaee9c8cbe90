// Package schema does for custom resources what an API server with their CRDs, those of the Gateway API and of Moongate, does: it
// sets defaults, finds unknown fields, and validates against the OpenAPI schema and its CEL rules. It exists so that manifests from
// files are validated by the rules of a cluster, neither more nor less.
//
// Schemas are compiled on first use, one served version at a time: a kind that is not used costs nothing. Everything here is safe
// for concurrent use.
//
// It only works on JSON-like values, and gets the kinds from package kind. It must never import translate or proxy.
package schema

import (
	"sync"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Kind is one served version of a CRD.
type Kind struct {
	Version string
	Name    string

	group, plural string
	once          sync.Once
	rules         *rules
	err           error
}

// rules is a compiled schema.
type rules struct {
	structural *structural.Structural
	// shape determines whether an object has the types and bounds of the schema; openapi reports violations.
	shape   *shape
	openapi validation.SchemaValidator
	// cel determines whether the CEL rules hold; nil if there are none. The validator reports which do not, and is created when one
	// first does not.
	cel       *celRules
	validator func() *cel.Validator
}

var kinds = func() map[string][]*Kind {
	m := map[string][]*Kind{}
	for _, k := range kind.All() {
		for _, v := range k.Versions {
			if k.Custom {
				m[k.Name] = append(m[k.Name], &Kind{Version: v, Name: k.Name, group: k.Group, plural: k.Resource})
			}
		}
	}
	return m
}()

// Lookup returns a served version of a kind; nil if there is none.
func Lookup(version, name string) *Kind {
	for _, k := range kinds[name] {
		if k.Version == version {
			return k
		}
	}
	return nil
}

func (k *Kind) compile() (*rules, error) {
	k.once.Do(func() { k.rules, k.err = compile(k.group, k.plural, k.Version) })
	return k.rules, k.err
}

func compile(group, plural, version string) (*rules, error) {
	crd, err := readCRD(group, plural)
	if err != nil {
		return nil, err
	}
	props, err := openAPI(crd, version)
	if err != nil {
		return nil, err
	}
	// Admission validates the whole object in the version in which it is written; descriptions are not needed from here on.
	dropDescriptions(props)
	s, err := structural.NewStructural(props)
	if err != nil {
		return nil, err
	}
	v, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	r := &rules{structural: s, shape: newShape(s), openapi: v, validator: sync.OnceValue(func() *cel.Validator {
		return cel.NewValidator(s, true, celconfig.PerCallLimit)
	})}
	if r.cel, err = newCELRules(s); err != nil {
		return nil, err
	}
	return r, nil
}
