// Package urlrewrite changes the host and the path that the backend receives (HTTPRoute filter URLRewrite). See
// README.md.
//
// It must never import another filter's folder.
package urlrewrite

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/pathmodifier"
)

const name = "URLRewrite"

// Compile compiles the filter.
func Compile(c *config.UrlRewrite, _ filter.Env) (filter.Filter, error) {
	path, err := pathmodifier.Compile(name, c.GetPath())
	if err != nil {
		return filter.Filter{}, err
	}
	var host []byte
	if c.GetHostname() != "" {
		if host, err = filter.Host(c.GetHostname()); err != nil {
			return filter.Filter{}, &filter.Error{Filter: name, Field: "hostname", Problem: err.Error(), Remedy: "give a hostname without a port"}
		}
	}
	return filter.Filter{Request: func(x *filter.Exchange) *filter.Reply {
		if host != nil {
			x.Request.Host = host
		}
		if p := x.Request.Path; !path.Keeps() && len(p) > 0 && p[0] == '/' { // OPTIONS * has no path to rewrite
			start := len(x.Scratch)
			x.Scratch = path.Append(x.Scratch, p)
			x.Request.Path = x.Made(start)
		}
		return nil
	}}, nil
}
