package match

import "github.com/moongate-dev/moongate/internal/proxy/message"

// MaxCandidates bounds the result of Explain. Where there are more, matches whose
// path fits come before others, and among those the ones that share
// the longest beginning with the request's path.
const MaxCandidates = 64

// Candidate is a match that was considered for a request.
type Candidate[V any] struct {
	Rule      *Rule[V]
	Effective string // config.Hostname.Effective it was found under
	Original  string // config.Hostname.Original
	// Matched tells that the request satisfies the match; the first such
	// Candidate is the one that Lookup returns.
	Matched bool
	// Why is empty for the winner. For others it is the first predicate that
	// failed, or the criterion by which the winner goes before.
	Why string
}

// Explain lists the matches whose hostname fits the request, in the order of
// precedence, at most MaxCandidates; a match that is there for several hostnames is
// listed for the most specific. It visits every route of these hostnames: not for the request path.
func (t *Table[V]) Explain(req *message.Request) []Candidate[V] { return nil }
