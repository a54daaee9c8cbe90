package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// connectionSchemes are the authentication schemes, in lower case, that authenticate the connection of a request instead
// of the request: NTLM, and Negotiate as in RFC 4559. RFC 9110 section 3.3 forbids servers to rely on that, but some do:
// they take whichever client sends the next request on the connection for the one that has authenticated.
var connectionSchemes = []string{"ntlm", "negotiate"}

// authenticatesConnection reports whether value, which is credentials or a challenge, is of one of connectionSchemes.
func authenticatesConnection(value []byte) bool {
	for _, scheme := range connectionSchemes {
		if len(value) >= len(scheme) && message.EqualFold(value[:len(scheme)], scheme) && (len(value) == len(scheme) || value[len(scheme)] == ' ') {
			return true
		}
	}
	return false
}

// challengesConnection reports whether any WWW-Authenticate challenge in the header of a response is of one of
// connectionSchemes. A field may have several challenges (RFC 9110 section 11.6.1).
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
