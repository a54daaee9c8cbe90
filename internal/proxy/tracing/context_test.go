package tracing

import (
	"testing"
)

const known = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseParent(t *testing.T) {
	for value, want := range map[string]bool{
		known: true, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff": true, "cc" + known[2:] + "-what": true, "cc" + known[2:]: true,
		"": false, known[:54]: false, known + "-": false, known + "0": false, "cc" + known[2:] + "x": false, "ff" + known[2:]: false, "0g" + known[2:]: false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false, "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false,
	} {
		if _, ok := parseParent([]byte(value)); ok != want {
			t.Errorf("%q: %v", value, ok)
		}
	}
}

// FuzzParent: what is taken for a parent is the same when it is written again, but for the version and what follows in another one.
func FuzzParent(f *testing.F) {
	f.Add([]byte(known))
	f.Add([]byte("cc" + known[2:] + "-more"))
	f.Fuzz(func(t *testing.T, value []byte) {
		p, ok := parseParent(value)
		if !ok {
			return
		}
		if got := appendParent(nil, p.trace, p.span, p.flags); string(got[2:]) != string(value[2:parentSize]) {
			t.Errorf("%q is read as %q", value, got)
		}
	})
}
