package certificate

import (
	"bytes"
	"testing"
)

func TestTicketSecrets(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	now, later := TicketSecrets(secret, "n/gw", "uid", 5), TicketSecrets(secret, "n/gw", "uid", 6)
	if len(now) != 3 || !bytes.Equal(now[1], later[0]) || !bytes.Equal(now[0], later[2]) || bytes.Equal(now[0], now[1]) {
		t.Error("not the present one, the next and the previous")
	}
	for what, other := range map[string][][]byte{
		"secret": TicketSecrets(bytes.Repeat([]byte{2}, 32), "n/gw", "uid", 5), "Gateway": TicketSecrets(secret, "n/other", "uid", 5),
		"UID": TicketSecrets(secret, "n/gw", "other", 5),
	} {
		if bytes.Equal(other[0], now[0]) {
			t.Errorf("another %s has the same", what)
		}
	}
	if got := TicketSecrets(nil, "n/gw", "uid", 5); got != nil {
		t.Errorf("%d of no secret", len(got))
	}
}
