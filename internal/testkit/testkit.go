// Package testkit contains what tests of several packages need: waiting for a condition, certificates, files, pages generated from
// the code, and a log that can be read while it is written. It exists so that each of these is written once. The fake API server is
// in apiserver.
//
// It must be imported by tests only, and must import nothing of this module.
package testkit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long to wait for what should happen at once. It is generous, because a slow machine is not a failure.
const Patience = time.Minute

// Eventually waits until is returns true, and fails the test after Patience.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// WriteFile writes a file that is removed after the test, and returns its path.
func WriteFile(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Log is a buffer that is safe for concurrent reading and writing. The zero value is ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Reset drops what was written, and its memory.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = bytes.Buffer{}
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often words were written.
func (l *Log) Count(words string) int { return strings.Count(l.String(), words) }
