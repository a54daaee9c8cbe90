package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// route is what is in force of an HTTPRoute or GRPCRoute.
type route struct {
	id          kind.ObjectKey
	created     int64                // in nanoseconds since the epoch
	attachments []*config.Attachment // the listeners that accept it
	rules       []*config.Rule       // without those that are dropped
}

// routesOf returns the routes of requests, in the order of precedence. The rules of the parts of a route differ only in policies.
func routesOf(resources []*config.Resource) (routes []*route) {
	known := map[string]*route{}
	for _, r := range resources {
		c := r.GetRoute()
		if c == nil {
			continue
		}
		key := config.WholeRouteKey(c.Key)
		whole := known[key]
		if whole == nil {
			name, _, _ := strings.Cut(key, "/")
			k := kind.Named(name)
			if k == nil {
				continue
			}
			whole = &route{id: k.Key(c.Namespace, c.Name), created: c.CreatedUnixNano, rules: c.Rules}
			known[key], routes = whole, append(routes, whole)
		}
		whole.attachments = append(whole.attachments, c.Attachments...)
	}
	for _, r := range routes {
		slices.SortFunc(r.attachments, func(a, b *config.Attachment) int { return cmp.Compare(a.Listener, b.Listener) })
	}
	slices.SortFunc(routes, func(a, b *route) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id.Namespace+"/"+a.id.Name, b.id.Namespace+"/"+b.id.Name), cmp.Compare(a.id.Kind, b.id.Kind))
	})
	return routes
}

// listenersOf returns the listeners by their keys.
func listenersOf(resources []*config.Resource) map[string]*config.Listener {
	listeners := map[string]*config.Listener{}
	for _, r := range resources {
		if c := r.GetListener(); c != nil {
			listeners[c.Key] = c
		}
	}
	return listeners
}
