// Package responseheadermodifier changes the header of a response before the
// client gets it (HTTPRoute filter ResponseHeaderModifier). See README.md.
//
// It must never import another filter's folder.
package responseheadermodifier

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/headermodifier"
)

// Compile compiles the filter.
func Compile(c *config.ResponseHeaderModifier, _ filter.Env) (filter.Filter, error) {
	m, err := headermodifier.Compile("ResponseHeaderModifier", c.GetSet(), c.GetAdd(), c.GetRemove())
	if err != nil {
		return filter.Filter{}, err
	}
	return filter.Filter{Response: func(x *filter.Exchange) { m.Apply(&x.Response.Header) }}, nil
}
