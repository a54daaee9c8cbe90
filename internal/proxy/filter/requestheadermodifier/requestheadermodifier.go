// Package requestheadermodifier changes the header of a request before it is
// forwarded (HTTPRoute filter RequestHeaderModifier). See README.md.
//
// It must never import another filter's folder.
package requestheadermodifier

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/headermodifier"
)

const name = "RequestHeaderModifier"

// Compile compiles the filter.
func Compile(c *config.RequestHeaderModifier, _ filter.Env) (filter.Filter, error) {
	m, err := headermodifier.Compile(name, c.GetSet(), c.GetAdd(), c.GetRemove())
	if err != nil {
		return filter.Filter{}, err
	}
	var host []byte
	if value, set := m.TakeHost(); set {
		if host, err = filter.Authority(string(value)); err != nil {
			return filter.Filter{}, &filter.Error{
				Filter:  name,
				Field:   "set",
				Problem: "the value of Host: " + err.Error(),
				Remedy:  "give a hostname with or without a port",
			}
		}
	}
	return filter.Filter{Request: func(x *filter.Exchange) *filter.Reply {
		if host != nil {
			x.Request.Host = host
		}
		x.DecideBy(&m)
		m.DropDisguised(&x.Request.Header)
		m.Apply(&x.Request.Header)
		return nil
	}}, nil
}
