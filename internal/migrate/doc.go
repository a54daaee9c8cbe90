// Package migrate turns Ingresses written for ingress-nginx into Gateway API objects that Moongate serves, and reports for each
// annotation and field whether it was translated, approximated or not translated, what differs, and what to do about it. It
// exists so that nobody who leaves ingress-nginx finds out about a difference from their users.
//
// # Design
//
//	Read     text to Ingresses, with the lines that they stand in
//	plan     Ingresses to servers and locations, as the controller of ingress-nginx does it
//	convert  servers and locations to a Gateway, HTTPRoutes, policies and grants
//	Report   what was found on the way, sorted by place
//
// ingress-nginx decides by host, not by Ingress. The first Ingress that names a path of a host has it; an Ingress with use-regex or
// rewrite-target makes all paths of its hosts case-insensitive regular expressions that match from the beginning of the
// path, tried from the longest to the shortest; and a canary takes a part of all traffic of a Service. So plan follows the
// controller (internal/ingress/controller of kubernetes/ingress-nginx) step by step, and convert knows locations only.
//
// Each host has listeners of its own, since no other listener is asked about requests for a host that has one. That is how
// servers of nginx work, and limits on bodies are set by listener. Rules of an Ingress for one host are one HTTPRoute of the same
// name, so that people find them again. Only on a host with regular expressions, where the order of all paths counts, is there one route for all Ingresses.
//
// Regular expressions of a route take precedence over prefixes, and longer ones over shorter ones, so the order of nginx comes out
// by itself. But a part of a path can only be replaced behind a PathPrefix. Such rewrites, and the paths that nginx would try after them, become
// PathPrefix matches, and the report says so.
//
// What protects a backend and cannot be translated (basic authentication, client certificates, an authorization server outside the
// cluster) is never just left out: the rule stays without backends, so requests are answered with 500 until somebody decides. Its filters and policies are there all the
// same, so that what can be translated holds as soon as the rule gets backends.
//
// Values of annotations get into fields that have patterns and bounds, and an object with one wrong value is refused as a whole. So everything is validated as manifests
// are before it is written (admit), and the rules of which something would be refused stay without backends, too.
//
// Package e2e serves the same requests through nginx and through what comes out here, and fails on a difference that the report does not name.
//
// Everything here is pure. It must never import translate, proxy or cli.
package migrate
