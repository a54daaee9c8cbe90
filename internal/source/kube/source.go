package kube

import (
	"context"
	"errors"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Options say which API server to read.
type Options struct {
	// Config is how it is reached; required. It is not modified.
	Config *rest.Config
	// Version of the program, for the user agent "moongate/<version>"; "" is "dev".
	Version string
	// Logger is told what keeps objects from being read; nil is slog.Default.
	Logger *slog.Logger
}

// Source reads from an API server.
type Source struct{}

// New makes a Source; the error says what is wrong with the configuration. Nothing is
// read before Run.
func New(options Options) (*Source, error) { return nil, errors.New("not yet") }

// Run hands everything to emit as soon as all watches have listed, and then each change
// until ctx ends. emit is called by one goroutine at a time; what happens meanwhile is in
// the next Change, without delay. The error is nil where ctx ended. Run may be called once.
func (s *Source) Run(ctx context.Context, emit func(Change)) error { return nil }

// Get returns an object as it was last seen: with status and resourceVersion where its
// kind has a status. It may be newer than the last Change. Secrets are there only while
// wanted. The object is shared: nobody may modify it. It may be called at any time.
func (s *Source) Get(id ID) (metav1.Object, bool) { return nil, false }

// Fetch notes which Secrets are wanted and which no longer are, and returns the contents
// of those newly wanted, as *corev1.Secret without resourceVersion; of one that does not
// exist nothing. One that cannot be read now is read again and again, and comes with a
// Change. It may be called at any time, also from within emit.
func (s *Source) Fetch(ctx context.Context, wants []Want) []metav1.Object { return nil }

// Waiting says, for each kind that has not been listed yet, why not; empty once all have
// been. It may be called at any time.
func (s *Source) Waiting() []string { return nil }
