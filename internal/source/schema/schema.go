// Package schema does to Gateway API objects what an API server with the Gateway
// API CRDs does: it sets defaults, finds unknown fields, and validates against
// the OpenAPI schema and its CEL rules. It exists so that a manifest that is read
// from a file is held to the rules of a cluster, neither more nor less.
//
// Schemas are compiled on first use, one served version at a time: a kind that
// nobody writes costs nothing. Everything here is safe for concurrent use.
//
// It works on JSON-like values only and must never import typed objects,
// translate or proxy.
package schema

import (
	"slices"
	"sync"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Group is the API group of all kinds here.
const Group = "gateway.networking.k8s.io"

// Kind is one served version of a CRD.
type Kind struct {
	Version string
	Name    string
	// Namespaced is the scope.
	Namespaced bool

	plural string
	once   sync.Once
	rules  *rules
	err    error
}

// rules is a compiled schema.
type rules struct {
	structural *structural.Structural
	// shape tells whether an object has the types and bounds of the schema; openapi says where not.
	shape   *shape
	openapi validation.SchemaValidator
	// cel tells whether the CEL rules hold; nil if there are none. The validator says which do not, and is made when one first does not.
	cel       *celRules
	validator func() *cel.Validator
}

// crdKinds lists the CRDs, preferred version first; a test compares it with them.
var crdKinds = []struct {
	name, plural string
	cluster      bool
	versions     []string
}{
	{"BackendTLSPolicy", "backendtlspolicies", false, []string{"v1", "v1alpha3"}},
	{"GRPCRoute", "grpcroutes", false, []string{"v1"}},
	{"Gateway", "gateways", false, []string{"v1", "v1beta1"}},
	{"GatewayClass", "gatewayclasses", true, []string{"v1", "v1beta1"}},
	{"HTTPRoute", "httproutes", false, []string{"v1", "v1beta1"}},
	{"ListenerSet", "listenersets", false, []string{"v1"}},
	{"ReferenceGrant", "referencegrants", false, []string{"v1", "v1beta1"}},
	{"TCPRoute", "tcproutes", false, []string{"v1", "v1alpha2"}},
	{"TLSRoute", "tlsroutes", false, []string{"v1", "v1alpha2", "v1alpha3"}},
	{"UDPRoute", "udproutes", false, []string{"v1", "v1alpha2"}},
}

var kinds = func() map[string][]*Kind {
	m := make(map[string][]*Kind, len(crdKinds))
	for _, k := range crdKinds {
		for _, v := range k.versions {
			m[k.name] = append(m[k.name], &Kind{Version: v, Name: k.name, Namespaced: !k.cluster, plural: k.plural})
		}
	}
	return m
}()

// Lookup finds a served version of a kind; nil if there is none.
func Lookup(version, name string) *Kind {
	for _, k := range kinds[name] {
		if k.Version == version {
			return k
		}
	}
	return nil
}

// Versions lists the served versions of a kind, preferred first; none for an unknown kind.
func Versions(name string) []string {
	var vs []string
	for _, k := range kinds[name] {
		vs = append(vs, k.Version)
	}
	return vs
}

// Names lists the kinds in alphabetical order.
func Names() []string {
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (k *Kind) compile() (*rules, error) {
	k.once.Do(func() { k.rules, k.err = compile(k.plural, k.Version) })
	return k.rules, k.err
}

func compile(plural, version string) (*rules, error) {
	crd, err := readCRD(plural)
	if err != nil {
		return nil, err
	}
	props, err := openAPI(crd, version)
	if err != nil {
		return nil, err
	}
	// Admission validates the whole object under the version it is written in;
	// descriptions are only ballast from here on.
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
