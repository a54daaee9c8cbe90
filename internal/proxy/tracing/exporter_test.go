package tracing

import "testing"

func TestRejectedSpans(t *testing.T) {
	for content, want := range map[string]int64{
		"": 0, "\x0a\x02\x08\x07": 7, "\x12\x01a\x0a\x02\x08\x07": 7,
		"\x0a\x03\x12\x01a": 0, "\x0a\xff": 0, "\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": 0,
	} {
		if got := rejectedSpans([]byte(content)); got != want {
			t.Errorf("%q: %d, want %d", content, got, want)
		}
	}
}

// FuzzAnswer: no answer of a collector is too much.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x0a\x02\x08\x07"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if n := rejectedSpans(content); n < 0 {
			t.Error(n)
		}
	})
}
