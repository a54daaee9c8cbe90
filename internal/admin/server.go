package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// DefaultAddress is what --admin-address is by default.
const DefaultAddress = "127.0.0.1:9901"

const (
	headTimeout  = 5 * time.Second
	replyTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxHeadBytes = 16 << 10
	// A profile is recorded for at most this long.
	maxProfile = 5 * time.Minute
)

// Status is what /status answers and what the dashboard shows.
type Status struct {
	// Items are Gateway API objects with their status, as Kubernetes would show them:
	// whatever encoding/json prints as an object with apiVersion, kind, metadata, status.
	Items []any `json:"items"`
	// Problems are the documents and fields of the file source that could not be used.
	Problems []Problem `json:"problems"`
	// Others are objects without a status that those of Items may refer to, such as Services, so that who shows a status can
	// name what was probably meant. A cluster's controller gives none.
	Others []Other `json:"others,omitempty"`
}

// Other is an object by its name.
type Other struct {
	Object string   `json:"object"`          // "<Kind> <namespace>/<name>"
	Ports  []string `json:"ports,omitempty"` // of a Service
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
	Warning bool   `json:"warning,omitempty"` // valid, but probably not intended
	Kept    bool   `json:"kept,omitempty"`    // the previous version stays in use
	Effect  string `json:"effect,omitempty"`  // what the object does until it is valid, where it is not only absent
}

// Groups of paths for Options.Paths.
var (
	// HealthPaths are for a server that others than this machine can reach.
	HealthPaths = []string{"/healthz", "/readyz", "/metrics"}
	// ProxyPaths are those of a proxy, which has configuration but no objects.
	ProxyPaths = append([]string{"/backends", "/config", "/debug/pprof/"}, HealthPaths...)
)

// ErrShutdown is why a process that still serves everything is not ready: it ends soon. A request for /readyz?exclude=shutdown, as API servers of Kubernetes have it, does not ask for that.
var ErrShutdown = errors.New("shutting down")

// Options are what the server shows. Callbacks are called for each request, must be safe for
// concurrent use, and may be nil.
type Options struct {
	// Listener is used instead of one that is bound to Address; nil is none.
	Listener net.Listener
	Address  string   // "" is DefaultAddress
	Flag     string   // that the address comes from, for messages; "" is --admin-address
	Paths    []string // what is answered, as in HealthPaths; nil is everything
	Version  string   // shown on the dashboard
	Gatherer prometheus.Gatherer
	// Ready answers nil once everything accepted is served, else why not, ErrShutdown while it is served but about to end; nil Ready is never ready.
	Ready func() error
	// Alive answers an error where only a restart helps; nil Alive is always alive. It must not block.
	Alive func() error
	// Status answers the objects and problems of now.
	Status func() Status
	// Config answers the configuration in force; it is printed as JSON in the order it has,
	// with secrets (key_pem and the like) redacted whatever it holds.
	Config func() (any, error)
	// Backends answers the backends and their endpoints as they are balanced now, sorted by name.
	Backends func() []Backend

	// What follows is for the dashboard and what it asks.

	// ControllerName is that of our GatewayClasses: what other controllers say of objects is no problem of ours.
	ControllerName string
	// Uncounted is that requests are counted by other processes.
	Uncounted bool
	// Note answers what this process does not know, and where that is to be found; "" where it knows all.
	Note func() string
	// Proxies answers the proxies of Gateways ("<namespace>/<name>") in other processes.
	Proxies func() map[string][]GatewayProxy
	// Certificates answers those that listeners show, the first to expire first.
	Certificates func() []Certificate
	// Overrides answers what policies ("<kind> <namespace>/<name>") take the place of.
	Overrides func() map[string][]Override
	// Explain decides a request; an error is about the question. Calls do not overlap.
	Explain func(Question) (*Explanation, error)
}

// Server is the admin server.
type Server struct {
	options  Options
	listener net.Listener
	http     *http.Server
	metrics  http.Handler
	loopback bool // bound to loopback only
	released atomic.Bool

	explaining chan struct{} // holds one while Explain is called
	dumping    chan struct{} // holds one while all objects, or the configuration, are printed

	reading sync.Mutex // guards what follows
	// read are certificates as they were at readAt.
	read   []Certificate
	readAt time.Time

	looking chan struct{} // has room for one; who has put something in may use what follows. reading is taken after it
	// inventory is what was read of the objects, and forgetting lets it go.
	inventory  inventory
	forgetting *time.Timer
	// complained is what conditions say against the objects judged.
	judged     []any
	complained []finding
}

// Listen binds the address; an error names --admin-address. Connections wait until Serve.
func Listen(o Options) (*Server, error) {
	if o.Address == "" {
		o.Address = DefaultAddress
	}
	l, err := o.Listener, error(nil)
	if l == nil {
		l, err = net.Listen("tcp", o.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("admin server: cannot listen: %w; say another address with %s (port 0 takes a free one)", err, cmp.Or(o.Flag, "--admin-address"))
	}
	s := &Server{options: o, listener: l, explaining: make(chan struct{}, 1), looking: make(chan struct{}, 1), dumping: make(chan struct{}, 1)}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.loopback = a.IP.IsLoopback()
	}
	if o.Gatherer != nil {
		s.metrics = promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeadBytes,
		// A client that breaks off is no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s, nil
}

// SyscallConn is for handing the listening socket to another process.
func (s *Server) SyscallConn() (syscall.RawConn, error) {
	if l, ok := s.listener.(syscall.Conn); ok {
		return l.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Release stops listening; requests on connections that there are, also on those that have sent nothing yet, are answered until Shutdown, which must follow.
func (s *Server) Release() {
	s.released.Store(true)
	s.http.SetKeepAlivesEnabled(false)
	s.listener.Close()
}

// Address is what Listen was given.
func (s *Server) Address() string { return s.options.Address }

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Exposed reports whether others than this machine can reach what shows state.
func (s *Server) Exposed() bool {
	return !s.loopback && slices.ContainsFunc(s.endpoints(), func(e endpoint) bool { return !slices.Contains(HealthPaths, e.path) })
}

// Serve answers requests until Shutdown or Release; then it returns nil.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) && !s.released.Load() {
		return fmt.Errorf("admin server on %s: %w", s.Addr(), err)
	}
	return nil
}

// Shutdown stops listening, lets requests in flight finish until ctx ends, then closes them.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.listener.Close() // where Serve was never called
	if err != nil {
		s.http.Close()
		return fmt.Errorf("admin server: requests were cut off: %w", err)
	}
	return nil
}
