package http1

import (
	"math"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// MaxForwards is how often a request may still be forwarded, by its method and Max-Forwards (RFC 9110 section 7.6.2). false is that nothing bounds it: its
// method is neither OPTIONS nor TRACE, or the field is not there, is no number, or is repeated.
func MaxForwards(req *message.Request) (n int, bounded bool) {
	switch string(req.Method) {
	case "OPTIONS", "TRACE":
	default:
		return 0, false
	}
	lines := 0
	for i := range req.Header.Len() {
		f := req.Header.At(i)
		if !is(f.Name, "max-forwards") {
			continue
		}
		if lines++; lines > 1 || len(f.Value) == 0 {
			return 0, false
		}
		for _, c := range f.Value {
			if class[c]&isDigit == 0 {
				return 0, false
			}
			n = min(10*n+int(c-'0'), math.MaxInt32) // as the greatest value that is supported
		}
	}
	return n, lines == 1
}
