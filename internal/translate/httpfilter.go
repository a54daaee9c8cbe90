package translate

import (
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// httpFilters contains the objects that filters of type ExtensionRef refer to.
type httpFilters struct {
	objects *incremental.Collection[name, *v1alpha1.HTTPFilter]
}

// beside returns those of a namespace.
func (hf *httpFilters) beside(v *incremental.View, namespace string) rule.HTTPFilters {
	return func(n string) *v1alpha1.HTTPFilter {
		f, _ := incremental.Fetch(v, hf.objects, name{namespace, n})
		return f
	}
}
