package tls

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// SecretSize is the length of each of config.TicketKeys.keys in bytes.
const SecretSize = 32

// CheckSecrets returns an error if the keys of a config.TicketKeys are invalid. The error contains nothing of them.
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

// ticketKeys returns the keys that encrypt (the first) and decrypt (all) the tickets of one listener's certificate.
//
// They are derived from the Gateway's secrets and from everything whose change must end a session: the listener, which
// may have other requirements for clients than another one; its validation of client certificates, so that a client
// that satisfied an earlier validation must present a certificate again; and the server certificate with which the
// session began. A session is resumed without presenting a certificate (RFC 8446 section 2.2), and each resumption
// provides a new ticket; section 4.6.1 requires a limit that takes the certificate's lifetime and revocation into
// account. Here the certificate itself is the limit: once it is replaced, or this client would get another one, a full
// handshake is made.
func ticketKeys(secrets [][]byte, listener string, c *Certificate, clients *Clients) [][32]byte {
	info := "moongate session tickets\n" + listener + "\n" + string(c.digest[:])
	if clients != nil {
		info += string(clients.digest[:])
	}
	out := make([][32]byte, 0, len(secrets))
	for _, s := range secrets {
		key, err := hkdf.Expand(sha256.New, s, info, SecretSize)
		if err != nil {
			return nil // no secret that CheckSecrets allows, so there are no tickets
		}
		out = append(out, [32]byte(key))
	}
	return out
}
