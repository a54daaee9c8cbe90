package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRepository(t *testing.T) {
	for reference, want := range map[string]string{
		"a": "a", "a:1": "a", "a@sha256:0": "a", "a:1@sha256:0": "a",
		"host:5000/a": "host:5000/a", "host:5000/a/b:v1": "host:5000/a/b",
	} {
		if got := Repository(reference); got != want {
			t.Errorf("Repository(%q) = %q, want %q", reference, got, want)
		}
	}
}

func TestStore(t *testing.T) {
	store := Store{Dir: filepath.Join(t.TempDir(), "images")}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	add := func(name, user string) error {
		return store.Add(Image{Name: name, User: user, Files: map[string]string{"/data": file}, Entrypoint: []string{"/elsewhere"}})
	}
	for _, name := range []string{"host:5000/a", "host:5000/a:v2"} {
		if err := add(name, name); err != nil {
			t.Fatal(err)
		}
	}
	for reference, want := range map[string]string{
		"host:5000/a": "host:5000/a", "host:5000/a:v1": "host:5000/a", "host:5000/a:v2": "host:5000/a:v2",
		"host:5000/a@sha256:0": "host:5000/a",
	} {
		if got, err := store.Get(reference); err != nil || got.User != want {
			t.Errorf("Get(%q) = %q, %v; want %q", reference, got.User, err, want)
		}
	}
	if _, err := store.Get("host:5000/b:v1"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a name that nothing is mapped to: %v", err)
	}
	if err := add("", ""); err == nil {
		t.Error("an image without name is accepted")
	}
	err := store.Add(Image{Name: "text", Files: map[string]string{"/program": file}, Entrypoint: []string{"/program"}})
	if err == nil {
		t.Error("a text file is accepted as a program")
	}
}
