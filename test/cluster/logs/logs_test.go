package logs

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCopyLog(t *testing.T) {
	long := strings.Repeat("x", maxLine+5)
	for name, test := range map[string]struct {
		written string
		request Request
		want    string
	}{
		"everything":             {"a\nb\n", Request{Tail: -1, Limit: -1}, "a\nb\n"},
		"the last line":          {"a\nb\n", Request{Tail: 1, Limit: -1}, "b\n"},
		"more than there is":     {"a\nb\n", Request{Tail: 9, Limit: -1}, "a\nb\n"},
		"none":                   {"a\nb\n", Request{Tail: 0, Limit: -1}, ""},
		"so many bytes":          {"abc\nd\n", Request{Tail: -1, Limit: 5}, "abc\nd"},
		"a line without end":     {"a\nb", Request{Tail: -1, Limit: -1}, "a\nb\n"},
		"a line that is cut":     {long + "\nb\n", Request{Tail: -1, Limit: -1}, long + "\nb\n"},
		"nothing is recent":      {"a\n", Request{Tail: -1, Limit: -1, Since: time.Now().Add(time.Hour)}, ""},
		"an empty line and text": {"\n\na\n", Request{Tail: 2, Limit: -1}, "\na\n"},
	} {
		log, err := New(filepath.Join(t.TempDir(), "0.log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []byte(test.written) { // in pieces, as pipes deliver
			log.Write([]byte{b})
		}
		log.Close()
		answer := httptest.NewRecorder()
		if err := log.Copy(t.Context(), answer, test.request); err != nil || answer.Body.String() != test.want {
			t.Errorf("%s: %q %v, want %q", name, answer.Body, err, test.want)
		}
	}
}

// TestFollowLog reads while lines arrive, and ends with the run.
func TestFollowLog(t *testing.T) {
	log, err := New(filepath.Join(t.TempDir(), "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	log.Write([]byte("a\n"))
	answer, done := httptest.NewRecorder(), make(chan error)
	go func() { done <- log.Copy(t.Context(), answer, Request{Tail: -1, Limit: -1, Follow: true}) }()
	for range 100 {
		log.Write([]byte("b\n"))
		time.Sleep(time.Millisecond)
	}
	log.Close()
	if err := <-done; err != nil || answer.Body.String() != "a\n"+strings.Repeat("b\n", 100) {
		t.Errorf("followed %q, %v", answer.Body, err)
	}
}
