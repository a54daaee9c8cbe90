// Package requestmirror defines where copies of requests are sent and which share of them is copied (HTTPRoute filter
// RequestMirror). The engine sends them. See README.md.
//
// It must never import another filter's folder.
package requestmirror

import (
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
)

const name = "RequestMirror"

// Compile compiles the filter.
func Compile(c *config.RequestMirror, env filter.Env) (filter.Filter, error) {
	if c.GetDenominator() == 0 {
		return filter.Filter{}, &filter.Error{Filter: name, Field: "denominator", Problem: "it is 0", Remedy: "give the share as numerator / denominator, 1 / 1 for all requests"}
	}
	backend := env.Backend(c.GetBackend())
	if backend == nil {
		return filter.Filter{}, &filter.Error{
			Filter:  name,
			Field:   "backend",
			Problem: fmt.Sprintf("there is no backend %q", c.GetBackend()),
			Remedy:  "send the Backend with or before the Route",
		}
	}
	return filter.Filter{Mirror: &filter.Mirror{Backend: backend, Numerator: c.GetNumerator(), Denominator: c.GetDenominator()}}, nil
}
