package requestmirror

import (
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
)

// Compile makes the filter.
func Compile(c *config.RequestMirror, env filter.Env) (filter.Filter, error) {
	return filter.Filter{}, nil
}
