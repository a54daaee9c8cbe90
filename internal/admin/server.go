package admin

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultAddress is what --admin-address is by default.
const DefaultAddress = "127.0.0.1:9901"

// Status is what /status answers and what the dashboard shows.
type Status struct {
	// Items are Gateway API objects with their status, as Kubernetes would show them:
	// whatever encoding/json prints as an object with apiVersion, kind, metadata, status.
	Items []any `json:"items"`
	// Problems are the documents and fields of the file source that could not be used.
	Problems []Problem `json:"problems"`
}

// Problem is one thing in the input that could not be used.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // counted from 1
	Object  string `json:"object,omitempty"` // "<Kind> <namespace>/<name>" as far as known
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	Ignored bool   `json:"ignored,omitempty"` // of an unknown kind: no mistake, only unused
}

// Options are what the server shows. Callbacks are called for each request, must be safe for
// concurrent use, and may be nil.
type Options struct {
	Address  string // "" is DefaultAddress
	Version  string // shown on the dashboard
	Gatherer prometheus.Gatherer
	// Ready answers nil once everything accepted is served, else why not; nil Ready is never ready.
	Ready func() error
	// Status answers the objects and problems of now.
	Status func() Status
	// Config answers the configuration in force; it is printed as JSON in the order it has,
	// with secrets (key_pem and the like) redacted whatever it holds.
	Config func() (any, error)
}

// Server is the admin server.
type Server struct{}

// Listen binds the address; an error names --admin-address.
func Listen(o Options) (*Server, error) { return &Server{}, nil }

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return nil }

// Serve answers requests until Shutdown; then it returns nil.
func (s *Server) Serve() error { return nil }

// Shutdown stops listening, lets requests in flight finish until ctx ends, then closes them.
func (s *Server) Shutdown(ctx context.Context) error { return nil }
