package tls

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// SecretSize is the length of each of config.TicketKeys.keys in bytes.
const SecretSize = 32

// CheckSecrets says what is wrong with the keys of a config.TicketKeys; it tells nothing of them.
func CheckSecrets(keys [][]byte) error {
	if len(keys) == 0 {
		return fmt.Errorf("there is no ticket key")
	}
	for i, k := range keys {
		if len(k) != SecretSize {
			return fmt.Errorf("ticket key %d has %d bytes, not %d", i, len(k), SecretSize)
		}
	}
	return nil
}

// ticketKeys are what seals (the first) and opens (all) the tickets of one listener's certificate.
//
// They are derived from the Gateway's secrets with what a session must not outlive or leave: the listener, which
// may demand other things of its clients than another one; what it demands of their certificates, so that whoever satisfied what was demanded
// before shows a certificate again; and the certificate that the client was shown when the
// session began. A session is resumed without showing a certificate again (RFC 8446 section 2.2), and each resumption
// gives a new ticket; section 4.6.1 asks for a limit to that which heeds the certificate's lifetime and revocation. Here it is
// the certificate itself: once it is replaced, or this client would be shown another one, the client shakes hands
// in full.
func ticketKeys(secrets [][]byte, listener string, c *Certificate, clients *Clients) [][32]byte {
	info := "moongate session tickets\n" + listener + "\n" + string(c.digest[:])
	if clients != nil {
		info += string(clients.digest[:])
	}
	out := make([][32]byte, 0, len(secrets))
	for _, s := range secrets {
		key, err := hkdf.Expand(sha256.New, s, info, SecretSize)
		if err != nil {
			return nil // no secret that CheckSecrets allows: no tickets
		}
		out = append(out, [32]byte(key))
	}
	return out
}
