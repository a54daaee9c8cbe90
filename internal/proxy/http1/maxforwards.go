package http1

import (
	"math"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// MaxForwards returns the Max-Forwards field of a request, and how many times the request may still be forwarded (RFC
// 9110 section 7.6.2). field is nil if nothing limits that: the method is neither OPTIONS nor TRACE, or the field is
// missing, not a number, or repeated.
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
			n = min(10*n+int(c-'0'), math.MaxInt32) // math.MaxInt32 is the largest supported value
		}
		field = f
	}
	return field, n
}
