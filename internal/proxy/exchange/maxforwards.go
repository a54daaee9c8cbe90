package exchange

import (
	"net/http"
	"strconv"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

// checkMaxForwards decrements the request's Max-Forwards, and answers the request if it may not be forwarded (RFC 9110
// section 7.6.2). OPTIONS gets no information, which only the backend could give. TRACE is not implemented: it would
// reveal fields that the client itself does not know.
func (x *Exchange) checkMaxForwards() (answered, read bool) {
	field, n := http1.MaxForwards(&x.Request.Request)
	switch {
	case field == nil:
		return false, false
	case n > 0:
		start := len(x.fx.Scratch)
		x.fx.Scratch = strconv.AppendInt(x.fx.Scratch, int64(n-1), 10)
		field.Value, field.Line = x.fx.Made(start), nil
		return false, false
	case string(x.Method) != http.MethodOptions:
		return true, x.fail(observe.ReasonNotImplemented)
	}
	x.resp.Reset()
	x.resp.Status = http.StatusOK
	x.filterResponse()
	return true, x.reply(x.resp.Status, observe.ReasonMaxForwards, nil)
}
