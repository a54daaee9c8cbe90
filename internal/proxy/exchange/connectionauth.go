package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// connectionSchemes are the authentication schemes, in lower case, that authenticate the connection of a request instead
// of the request: NTLM, and Negotiate as in RFC 4559. RFC 9110 section 3.3 forbids servers to rely on that, but some do:
// they take whichever client sends the next request on the connection for the one that has authenticated.
var connectionSchemes = []string{"ntlm", "negotiate"}

// namesConnectionScheme reports whether any credentials or challenge in the fields of that name, in lower case, are of such a scheme. A field may have several challenges
// (RFC 9110 section 11.6.1), and a client may send several fields of which the server takes any.
func namesConnectionScheme(header *message.Fields, name string) bool {
	for i := range header.Len() {
		f := header.At(i)
		if !message.EqualFold(f.Name, name) {
			continue
		}
		for value := range bytes.SplitSeq(f.Value, []byte{','}) {
			if isConnectionScheme(bytes.Trim(value, " \t")) {
				return true
			}
		}
	}
	return false
}

// isConnectionScheme reports whether credentials or a challenge begin with such a scheme.
func isConnectionScheme(value []byte) bool {
	for _, scheme := range connectionSchemes {
		if len(value) >= len(scheme) && message.EqualFold(value[:len(scheme)], scheme) &&
			(len(value) == len(scheme) || value[len(scheme)] == ' ' || value[len(scheme)] == '\t') {
			return true
		}
	}
	return false
}
