package translate

import "testing"

// TestParseBackendKey takes keys apart of objects that have the names of all words in them.
func TestParseBackendKey(t *testing.T) {
	words := []string{"a", "by", "http2", "passthrough", "udp", "Service", "XBackend", "80"}
	for _, namespace := range words {
		for _, n := range words {
			plain := backendKey{Name: name{namespace, n}, Port: 80}
			over2, passed, udp, x := plain, plain, plain, plain
			over2.HTTP2, passed.Passthrough, udp.UDP, x.XBackend = true, true, true, true
			x2 := x
			x2.HTTP2 = true
			for _, key := range []backendKey{plain, over2, passed, udp, x, x2} {
				for _, key.Policy = range []string{"", "a/b", "by/udp+http2/80"} {
					if got := parseBackendKey(backendID(key.String())); got != key {
						t.Errorf("%s is %+v, want %+v", key, got, key)
					}
				}
			}
		}
	}
	for _, id := range []backendID{"", "odd", "a/b/c"} {
		if got := parseBackendKey(id); got != (backendKey{}) {
			t.Errorf("%q is %+v", id, got)
		}
	}
}
