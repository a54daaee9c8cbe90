package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Two authentication schemes authenticate the connection that a request comes by, not the request: NTLM, and Negotiate as RFC 4559 has it. RFC 9110 section 3.3 forbids
// that servers assume it, and some do: whoever's request comes next by the connection is taken for the client before.
var connectionSchemes = []string{"ntlm", "negotiate"}

// authenticatesConnection reports whether credentials, or a challenge, are of a scheme that authenticates the connection.
func authenticatesConnection(value []byte) bool {
	for _, scheme := range connectionSchemes {
		if len(value) >= len(scheme) && message.EqualFold(value[:len(scheme)], scheme) && (len(value) == len(scheme) || value[len(scheme)] == ' ') {
			return true
		}
	}
	return false
}

// challengesConnection reports whether any challenge of a response is of such a scheme. A field may have several (RFC 9110 section 11.6.1).
func challengesConnection(header *message.Fields) bool {
	for i := range header.Len() {
		f := header.At(i)
		if !message.EqualFold(f.Name, "www-authenticate") {
			continue
		}
		for challenge := range bytes.SplitSeq(f.Value, []byte{','}) {
			if authenticatesConnection(bytes.Trim(challenge, " \t")) {
				return true
			}
		}
	}
	return false
}
