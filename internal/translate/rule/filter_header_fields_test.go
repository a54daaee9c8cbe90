package rule

import "testing"

// TestIsReserved: entries that the data plane ignores are reported, in whatever spelling a server may take for theirs.
func TestIsReserved(t *testing.T) {
	for name, want := range map[string]bool{
		"Content-Length": true, "content_length": true, "Content.Length": true, "TRANSFER~ENCODING": true, "Keep+Alive": true, "CDN_Loop": true, "TE": true,
		"Content-Lengths": false, "ContentLength": false, "X.User": false, "T.E": false,
	} {
		if got := isReserved(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
