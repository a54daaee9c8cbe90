// Package migrate converts Ingresses written for ingress-nginx to Gateway API objects for Moongate, and reports for each annotation
// and field whether it was translated, approximated or not translated, what differs, and what to do about it. It exists so that
// users who leave ingress-nginx learn of differences before their clients do.
//
// # Design
//
//	Read     text to Ingresses, with the lines that they stand in
//	plan     Ingresses to servers and locations, as the controller of ingress-nginx does it
//	convert  servers and locations to a Gateway, HTTPRoutes, policies and grants
//	Report   what was found on the way, sorted by place
//
// ingress-nginx decides by host, not by Ingress. The first Ingress with a path of a host gets it; an Ingress with use-regex or
// rewrite-target makes all paths of its hosts case-insensitive regular expressions that match from the beginning of the path, tried
// from the longest to the shortest; and a canary gets a share of all traffic of a Service. So plan follows the controller
// (internal/ingress/controller of kubernetes/ingress-nginx) step by step, and convert only knows locations.
//
// Each host has its own listeners, because requests for a host with a listener never use another listener. Servers of nginx work in
// the same way, and limits of bodies are set by listener. Rules of an Ingress for one host become one HTTPRoute with the same name,
// so that users recognize them. Only for a host with regular expressions, where the order of all paths counts, there is one route
// for all Ingresses.
//
// Regular expressions of a route take precedence over prefixes, and longer ones over shorter ones, which is the order of nginx. But
// a part of a path can only be replaced after a PathPrefix. Such rewrites, and the paths that nginx would try after them, become
// PathPrefix matches, and the report mentions it.
//
// What protects a backend and cannot be translated (basic authentication, client certificates, an authorization server outside the
// cluster) is never just left out: the rule has no backends, so requests are answered with 500 until a user decides. Its filters and
// policies exist nevertheless, so that what can be translated applies as soon as the rule gets backends.
//
// Values of annotations become values of fields with patterns and limits, and an object with one invalid value is rejected as a
// whole. So everything is validated like manifests before it is written (admit), and rules with rejected parts have no backends
// either.
//
// Package e2e sends the same requests to nginx and to Moongate with the converted objects, and fails on a difference that the report
// does not mention.
//
// Everything here is pure. It must never import translate, proxy or cli.
package migrate
