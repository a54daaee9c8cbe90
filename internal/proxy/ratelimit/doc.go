// Package ratelimit decides whether requests of a rule pass, by the rateLimit of BackendTrafficPolicies. It is separate
// from exchange because it is a function of a request's head, the client's address and the time, and so can be tested
// exactly.
//
// A local limit counts in this process, with a token bucket: it lets as many requests pass at once as its limit, and
// fills steadily in the limit's period. Of a burst exactly that many pass, however many goroutines ask.
//
// Counters survive an edit of the rule or policy as long as the limit itself does not change: see Store.
//
// It imports config, match, message and refcount; never the packages that use it.
package ratelimit
