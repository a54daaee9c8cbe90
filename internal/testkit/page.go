package testkit

import (
	"os"
	"strings"
	"testing"
)

// SamePage checks that a page of docs equals what a test has generated from the code; with update it writes the page first.
func SamePage(t testing.TB, file, made string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != made {
		t.Errorf("%s is not what the code says: run the test with -update", file)
	}
}

// SamePart is SamePage for the part of a page between two marks, which are kept.
func SamePart(t testing.TB, file, begin, end, made string, update bool) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s lacks the marks of the part that is made from the code", file)
	}
	SamePage(t, file, before+begin+made+end+after, update)
}
