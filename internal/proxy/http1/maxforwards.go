package http1

import (
	"math"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// MaxForwards returns the field of a request that bounds how often it may still be forwarded, and how often (RFC 9110 section 7.6.2). nil is that nothing
// bounds it: its method is neither OPTIONS nor TRACE, or Max-Forwards is not there, is no number, or is repeated.
func MaxForwards(req *message.Request) (field *message.Field, n int) {
	switch string(req.Method) {
	case "OPTIONS", "TRACE":
	default:
		return nil, 0
	}
	for i := range req.Header.Len() {
		f := req.Header.At(i)
		if !is(f.Name, "max-forwards") {
			continue
		}
		if field != nil || len(f.Value) == 0 {
			return nil, 0
		}
		for _, c := range f.Value {
			if class[c]&isDigit == 0 {
				return nil, 0
			}
			n = min(10*n+int(c-'0'), math.MaxInt32) // as the greatest value that is supported
		}
		field = f
	}
	return field, n
}
