package auth

import (
	"bytes"
	"testing"
)

// TestSecret: replicas agree, purposes differ, and nothing is written for it.
func TestSecret(t *testing.T) {
	c, secrets := newClock(), secretsOf()
	one := newAuthority(t, secrets, c)
	two := newAuthority(t, secrets, c)
	writes := secrets.writes
	of := func(a *Authority, purpose string) []byte {
		t.Helper()
		s, err := a.Secret(purpose)
		if err != nil || len(s) != 32 {
			t.Fatalf("%d bytes, %v", len(s), err)
		}
		return s
	}
	if !bytes.Equal(of(one, "a"), of(two, "a")) {
		t.Error("two replicas have two secrets")
	}
	if bytes.Equal(of(one, "a"), of(one, "b")) {
		t.Error("two purposes have one secret")
	}
	if secrets.writes != writes {
		t.Error("the Secret was written")
	}
	before := of(one, "a")
	secrets.secret = nil // somebody deletes it
	one.mustLook(t)
	if bytes.Equal(of(one, "a"), before) {
		t.Error("another authority has the secret of the one before")
	}
	two.mustLook(t)
	if !bytes.Equal(of(one, "a"), of(two, "a")) {
		t.Error("replicas do not agree on the secret of the new authority")
	}
}
