// Package ratelimit decides how many requests of a rule pass, by the rateLimit of BackendTrafficPolicies. It exists apart from exchange because it is a function of a
// request's head, the client's address and the time, and can so be tested to the token.
//
// A local limit counts in this process, by a token bucket: it lets pass as many requests at once as its limit says, and fills steadily in the limit's period. Of a
// burst exactly that many pass, however many goroutines ask.
//
// What is counted outlives an edit of the rule or policy, so long as the limit itself stays as it is: see Store.
//
// It imports config, match, message and refcount; never the packages that ask it.
package ratelimit
