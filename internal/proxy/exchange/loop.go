package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// maxPasses is how often a request may pass proxies of Moongate, whichever they are: a chain of Gateways, and a backend that
// calls through its own Gateway with the fields of the request that it serves, pass a few times. A loop
// does until descriptors run out.
const maxPasses = 10

// CDN-Loop (RFC 8586) tells of the passes, and not Via, since several servers turn compression off for requests with Via.
var (
	cdnLoop    = []byte("CDN-Loop")
	passedHere = []byte("moongate")
)

// countPass adds this pass to the request; false where there were too many.
func (x *Exchange) countPass() bool {
	if passes(&x.Header) >= maxPasses {
		return false
	}
	x.Header.Add(cdnLoop, passedHere)
	return true
}

// passes is how often the request has passed a proxy of Moongate.
func passes(h *message.Fields) (n int) {
	for i := range h.Len() {
		f := h.At(i)
		if len(f.Name) != len(cdnLoop) || !message.EqualFoldBytes(f.Name, cdnLoop) {
			continue
		}
		for rest, more := f.Value, true; more; {
			var id []byte
			id, rest, more = bytes.Cut(rest, []byte(","))
			id, _, _ = bytes.Cut(id, []byte(";")) // parameters, which we have none of
			if message.EqualFoldBytes(bytes.TrimSpace(id), passedHere) {
				n++
			}
		}
	}
	return n
}
