package exchange

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// connectionSchemes are the authentication schemes, in lower case, that authenticate the connection of a request instead
// of the request: NTLM, and Negotiate as in RFC 4559. RFC 9110 section 3.3 forbids servers to rely on that, but some do:
// they take whichever client sends the next request on the connection for the one that has authenticated.
var connectionSchemes = []string{"ntlm", "negotiate"}

// namesConnectionScheme reports whether credentials or a challenge in any field with the name, which must be in lower case,
// use one of connectionSchemes. A field may contain several challenges (RFC 9110 section 11.6.1), and a server may use any of
// several fields.
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

// isConnectionScheme reports whether credentials or a challenge begin with one of connectionSchemes.
func isConnectionScheme(value []byte) bool {
	for _, scheme := range connectionSchemes {
		if len(value) >= len(scheme) && message.EqualFold(value[:len(scheme)], scheme) &&
			(len(value) == len(scheme) || value[len(scheme)] == ' ' || value[len(scheme)] == '\t') {
			return true
		}
	}
	return false
}
