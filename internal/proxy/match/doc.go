// Package match chooses the listener and the rule for a request: it holds
// compiled, immutable tables of hostnames and routes in the order of precedence
// of the Gateway API (HTTPRouteRule, "matches", v1.7.0).
//
// It exists so that neither a request nor an edit costs more if there are
// more routes. A lookup is a few hash probes: the host and its suffixes, the
// path and its prefixes, both bounded by the greatest depth configured. An edit
// copies the few nodes between the root and what changed and shares the rest
// with the previous table, which readers continue to use without a lock.
//
// # Precedence
//
// Of all matches that a request satisfies, the first in this order wins:
//
//  1. effective hostname (of the attachment): exact, longest wildcard, none
//  2. original hostname (of the route): the same order
//  3. for a gRPC call, recognized by its content type, matches of GRPCRoutes, and for any other request matches of HTTPRoutes: matches of both kinds are not
//     merged (GRPCRouteRule, "matches")
//  4. path: Exact; then RegularExpression, longer pattern first; then
//     PathPrefix, longer first
//  5. a method match
//  6. more header matches
//  7. more query parameter matches
//  8. older route; a route without creation time is the oldest
//  9. "namespace/name", bytewise
//  10. position of the rule, then of the match
//
// A request that satisfies no match of a hostname is tried against less specific
// hostnames of the same listener. A rule that has a Failure or no backendRefs
// wins like any other.
//
// # What is compared
//
// Paths are compared in the normal form of [message.Request].Path, percent-encoded;
// Compile brings the values of Exact and PathPrefix into that form, so that "/café" and
// "/caf%c3%a9" are one value. Regular expressions are RE2, must match the
// whole path or value, and see the path as it is forwarded, percent-encoded.
// PathPrefix "" also matches the target "*" of OPTIONS.
//
// Header names are compared without case, values with it. Several field lines
// of one name are one value, joined by "," (RFC 9110 section 5.2); where a value
// to be equal to is configured, a space behind such a comma is optional. The
// name "host" stands for [message.Request].Host, and ":path" for Path: a condition on a part of the path that comes after
// the prefix in precedence, as on a gRPC method of whatever service. Of the fields that the connection consumed Content-Length,
// Upgrade, TE and Expect can be matched, in the form of [message.Consumed]: TE is "trailers", which is all that is passed on of it, and an
// extended CONNECT (RFC 8441) has its protocol as Upgrade. The others cannot be matched.
//
// Query parameters are split at "&", percent-decoded, and "+" is a space; a broken
// escape stands for itself. The first parameter of a name counts; one without "="
// has the value "".
//
// # Limits
//
// What the regular expressions of a request may cost is bounded (see maxSteps); beyond it no rule is found,
// which is ErrMatchLimit.
//
// Matches of one hostname that have the same path, and all regular expressions for paths
// of one hostname, are tried one after the other, unless they ask for different values of a
// header: these are found by the value. Such a list is the only thing whose length a
// request or an edit notices, and a request only as far as the first match that fits.
//
// The package imports internal/config, internal/proxy/message and the
// standard library; never translate, other parts of proxy, or k8s.io.
package match
