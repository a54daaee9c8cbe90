package cginame

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"X-User", "x-user", true}, {"X_User", "x-user", true}, {"x-user", "X_USER", true}, {"x_user", "x_user", true}, {"", "", true},
		{"x-user", "x-use", false}, {"x-user", "x-uses", false}, {"xauser", "x_user", false}, {"x1", "x-", false},
	} {
		if got := Same([]byte(c.a), c.b); got != c.want {
			t.Errorf("%q, %q: %v", c.a, c.b, got)
		}
	}
	for i := range 256 {
		b := byte(i)
		alphanumeric := 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9'
		name := []byte{'X', b, 'A'}
		if Same(name, "x-a") == alphanumeric || Same("x-a", name) == alphanumeric {
			t.Errorf("%q, x-a: %v", name, alphanumeric)
		}
		want := "x-a"
		if alphanumeric {
			want = strings.ToLower(string(name))
		}
		if got := string(Append([]byte("n: "), name)); got != "n: "+want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := Of(string(name)); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
