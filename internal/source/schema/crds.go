package schema

import (
	"embed"
	"fmt"

	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
)

//go:generate sh -c "cp -f $(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/experimental/gateway.networking.k8s.io_*s.yaml $(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/experimental/gateway.networking.x-k8s.io_xtelemetrypolicies.yaml $(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/experimental/gateway.networking.x-k8s.io_xbackends.yaml crds/ && chmod 644 crds/*.yaml && rm -f crds/*_vap_*"

//go:embed crds/*.yaml
var crds embed.FS

// readCRD parses the embedded CRD of a group and plural name.
func readCRD(group, plural string) (*apiextv1.CustomResourceDefinition, error) {
	name := group + "_" + plural + ".yaml"
	b, err := crds.ReadFile("crds/" + name)
	switch group {
	case v1alpha1.GroupName:
		b, err = v1alpha1.Definitions.ReadFile(name)
	case eg.GroupName:
		b, err = eg.Definitions.ReadFile(name)
	case gwx.GroupName:
		if own, missing := gwx.Definitions.ReadFile(name); missing == nil {
			b, err = own, nil
		}
	}
	if err != nil {
		return nil, err
	}
	crd := new(apiextv1.CustomResourceDefinition)
	if err := yaml.Unmarshal(b, crd); err != nil {
		return nil, fmt.Errorf("CRD %s: %w", plural, err)
	}
	return crd, nil
}

// openAPI returns the schema of one version in the form for the validators.
func openAPI(crd *apiextv1.CustomResourceDefinition, version string) (*apiext.JSONSchemaProps, error) {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != version {
			continue
		}
		out := new(apiext.JSONSchemaProps)
		err := apiextv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, out, nil)
		return out, err
	}
	return nil, fmt.Errorf("CRD %s has no version %s", crd.Name, version)
}

// dropDescriptions removes the descriptions, which are most of a CRD's size.
func dropDescriptions(p *apiext.JSONSchemaProps) {
	p.Description = ""
	for name, child := range p.Properties {
		dropDescriptions(&child)
		p.Properties[name] = child
	}
	if p.Items != nil && p.Items.Schema != nil {
		dropDescriptions(p.Items.Schema)
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		dropDescriptions(p.AdditionalProperties.Schema)
	}
}
