package observe

import (
	"regexp"
	"testing"
)

func TestReasonTable(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := make(map[string]bool)
	for i, info := range Reasons() {
		r := Reason(i)
		if info.Reason != r || r.String() != info.Word || r.Source() != info.Source || r.Status() != info.Status || r.Retryable() != info.Retryable {
			t.Errorf("entry %d disagrees with the methods of its Reason: %+v", i, info)
		}
		if !word.MatchString(info.Word) || seen[info.Word] {
			t.Errorf("reason %d: word %q is malformed or used twice", i, info.Word)
		}
		seen[info.Word] = true
		if info.Description == "" {
			t.Errorf("%s has no description", info.Word)
		}
		if info.Retryable && info.Source != SourceUpstream {
			t.Errorf("%s is retryable, but not upstream's doing", info.Word)
		}
		if info.Status != 0 && (info.Status < 100 || info.Status > 599) {
			t.Errorf("%s: status %d", info.Word, info.Status)
		}
		if got, ok := ReasonByWord(info.Word); !ok || got != r {
			t.Errorf("ReasonByWord(%q) = %v, %v", info.Word, got, ok)
		}
	}
	if _, ok := ReasonByWord("no such word"); ok {
		t.Error("an unknown word was found")
	}
	if got := Reason(255).String(); got != "internal" {
		t.Errorf("a reason out of range prints %q", got)
	}
	if Reason(0) != ReasonInternal {
		t.Error("the zero Reason must be internal, so that an exit without a reason is seen")
	}
}
