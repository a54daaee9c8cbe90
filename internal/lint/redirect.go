package lint

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// redirects reports rules that redirect requests to the URL at which they receive them, such as a redirect to HTTPS that is attached
// to the HTTPS listener, too. It must be called after matches.
func (l *linter) redirects(objects []metav1.Object, routes []*route, listeners map[string]*config.Listener) {
	specs := map[kind.ObjectKey]*gwv1.HTTPRoute{}
	for _, o := range objects {
		if spec, ok := o.(*gwv1.HTTPRoute); ok {
			specs[kind.KeyOf(o)] = spec
		}
	}
	for _, r := range routes {
		spec := specs[r.id]
		for _, rule := range r.rules {
			if spec == nil || int(rule.Index) >= len(spec.Spec.Rules) || rule.Failure != nil {
				continue
			}
			at, redirect := redirectOf(&spec.Spec.Rules[rule.Index])
			if redirect == nil {
				continue
			}
			var looping, others []*config.Listener
			for _, a := range r.attachments {
				listener := listeners[a.Listener]
				if listener == nil {
					continue
				}
				if leadsBack(redirect, listener) && l.redirectsToItself(r, rule, redirect, a) {
					looping = append(looping, listener)
				} else {
					others = append(others, listener)
				}
			}
			if len(looping) > 0 {
				l.add(spec, fmt.Sprintf("spec.rules[%d].filters[%d].requestRedirect", rule.Index, at),
					fmt.Sprintf("it redirects requests to listener %s to the same URL, so clients never reach anything else", looping[0].Key), loopRemedy(redirect, looping, others))
			}
		}
	}
}

// redirectOf returns the redirect of a rule and its index; nil if there is none, or if other filters may change what it does or
// answer before it.
func redirectOf(rule *gwv1.HTTPRouteRule) (at int, redirect *gwv1.HTTPRequestRedirectFilter) {
	for i, f := range rule.Filters {
		switch f.Type {
		case gwv1.HTTPRouteFilterRequestRedirect:
			at, redirect = i, f.RequestRedirect
		case gwv1.HTTPRouteFilterRequestMirror, gwv1.HTTPRouteFilterCORS:
		default:
			return 0, nil
		}
	}
	return at, redirect
}

// leadsBack reports whether a redirect keeps the scheme and the port of requests to a listener.
func leadsBack(redirect *gwv1.HTTPRequestRedirectFilter, listener *config.Listener) bool {
	if len(listener.TrustedProxies)+len(listener.Filters) > 0 || listener.Failure != nil {
		return false // clients may use another scheme than the listener, or get another answer
	}
	scheme, known := "http", uint32(80)
	switch listener.Protocol {
	case config.Protocol_PROTOCOL_HTTP:
	case config.Protocol_PROTOCOL_HTTPS:
		scheme, known = "https", 443
	default:
		return false
	}
	port := listener.Port // without scheme and port, that of the listener
	if redirect.Scheme != nil {
		port = known
	}
	if redirect.Port != nil {
		port = uint32(*redirect.Port)
	}
	return port == listener.Port && (redirect.Scheme == nil || *redirect.Scheme == scheme)
}

// redirectsToItself reports whether a rule with a redirect that keeps scheme and port receives a request at a listener which it
// redirects to the same host and path.
func (l *linter) redirectsToItself(r *route, rule *config.Rule, redirect *gwv1.HTTPRequestRedirectFilter, a *config.Attachment) bool {
	return slices.ContainsFunc(a.Hostnames, func(h *config.Hostname) bool {
		if redirect.Hostname != nil && string(*redirect.Hostname) != h.Effective {
			return false
		}
		p := place{a.Listener, h.Effective, h.Original, r.id.Kind}
		if l.originals[p.ofAnyOriginal()] > 1 {
			return false // routes with another hostname of their own, which may precede, match the same requests
		}
		return slices.ContainsFunc(rule.Matches, func(m *config.Match) bool {
			by := l.taken[p][matchKey(m)]
			return by.route == r.id && by.rule == rule.Index && keepsPath(redirect.Path, m)
		})
	})
}

// keepsPath reports whether some request matches again after its redirect, because its path stays the same.
func keepsPath(path *gwv1.HTTPPathModifier, m *config.Match) bool {
	if len(m.Headers) > 0 || !slices.Contains([]string{"", "GET", "HEAD"}, m.Method) {
		return false // after a redirect clients may send other headers, or GET instead of the method
	}
	switch {
	case path == nil:
		return true
	case path.ReplaceFullPath != nil:
		return m.Path.GetType() == config.PathMatchType_PATH_MATCH_TYPE_EXACT && m.Path.GetValue() == *path.ReplaceFullPath
	case path.ReplacePrefixMatch != nil:
		return m.Path.GetType() == config.PathMatchType_PATH_MATCH_TYPE_PREFIX && m.Path.GetValue() == strings.TrimSuffix(*path.ReplacePrefixMatch, "/")
	}
	return false
}

// loopRemedy returns what to do about a redirect that leads back at some of the listeners of its route, and not at others.
func loopRemedy(redirect *gwv1.HTTPRequestRedirectFilter, looping, others []*config.Listener) string {
	switch {
	case redirect.Hostname != nil:
		return fmt.Sprintf("remove %s from spec.hostnames, or redirect to another hostname", *redirect.Hostname)
	case len(others) == 1:
		return fmt.Sprintf("attach the route to listener %s only: write sectionName: %s in parentRefs", others[0].Key, others[0].Name)
	case len(others) > 1:
		return fmt.Sprintf("write in parentRefs the sectionName of each listener that the redirect is for, and leave out %s", looping[0].Name)
	}
	return "redirect to another scheme, hostname, port or path"
}
