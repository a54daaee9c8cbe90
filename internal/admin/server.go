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

// DefaultAddress is the default of --admin-address.
const DefaultAddress = "127.0.0.1:9901"

const (
	headTimeout  = 5 * time.Second
	replyTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxHeadBytes = 16 << 10
	// The maximum time for which a profile is recorded.
	maxProfile = 5 * time.Minute
)

// Status is the response of /status, and what the dashboard shows.
type Status struct {
	// Items are Gateway API objects with their status, as in Kubernetes: values that encoding/json encodes as an object with
	// apiVersion, kind, metadata and status.
	Items []any `json:"items"`
	// Problems are the documents and fields of the file source that could not be used.
	Problems []Problem `json:"problems"`
	// Others are objects without a status to which Items may refer, such as Services, so that a client can suggest the name that was
	// probably meant. The controller of a cluster provides none.
	Others []Other `json:"others,omitempty"`
	// ControllerName is that of the GatewayClasses that this process manages; "" if it is an older version.
	ControllerName string `json:"controllerName,omitempty"`
}

// Other is the name of an object.
type Other struct {
	Object string   `json:"object"`          // "<Kind> <namespace>/<name>"
	Ports  []string `json:"ports,omitempty"` // of a Service
}

// Problem is something in the input that could not be used.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`   // from 1
	Object  string `json:"object,omitempty"` // "<Kind> <namespace>/<name>" as far as known
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	Ignored bool   `json:"ignored,omitempty"` // of an unknown kind: not a mistake, but not used
	Warning bool   `json:"warning,omitempty"` // valid, but probably not intended
	Kept    bool   `json:"kept,omitempty"`    // the previous version stays in use
	Effect  string `json:"effect,omitempty"`  // what the object does until it is valid, if it is not just absent
}

// Missing reports whether something that the input asks for has no effect because of the problem; see manifest.Problem.
func (p Problem) Missing() bool { return p.Ignored == p.Warning }

// Sets of paths for Options.Paths.
var (
	// HealthPaths are for a server that can be reached from other hosts.
	HealthPaths = []string{"/healthz", "/readyz", "/metrics"}
	// ProxyPaths are those of a proxy, which has configuration but no objects.
	ProxyPaths = append([]string{"/backends", "/config", "/debug/pprof/"}, HealthPaths...)
)

// ErrShutdown is returned by Options.Ready if a process still serves everything, but will end soon. A request for
// /readyz?exclude=shutdown ignores it, as in Kubernetes API servers.
var ErrShutdown = errors.New("shutting down")

// Options configure the server. Callbacks are called for each request, must be safe for concurrent use, and may be nil.
type Options struct {
	// Listener is used instead of binding Address; may be nil.
	Listener net.Listener
	Address  string   // "" means DefaultAddress
	Flag     string   // the flag that sets the address, for messages; "" means --admin-address
	Paths    []string // the paths that are served, such as HealthPaths; nil means all
	Version  string   // shown on the dashboard
	Gatherer prometheus.Gatherer
	// Ready returns nil once everything accepted is served, ErrShutdown while it is served but the process is about to end, and else
	// why not. If Ready is nil, the process is never ready.
	Ready func() error
	// Alive returns an error if only a restart helps; nil means always alive. It must not block.
	Alive func() error
	// Status returns the present objects and problems.
	Status func() Status
	// Config returns the configuration in force; it is encoded as JSON in its own order, with secrets (key_pem and the like)
	// redacted.
	Config func() (any, error)
	// Backends returns the backends and their endpoints as they are balanced now, sorted by name.
	Backends func() []Backend

	// The following fields are for the dashboard and its requests.

	// ControllerName is that of managed GatewayClasses: what other controllers report on objects is not a problem here.
	ControllerName string
	// Uncounted is set if other processes count requests.
	Uncounted bool
	// Note returns what this process does not know, and where to find it; "" if it knows everything.
	Note func() string
	// Proxies returns the proxies of Gateways ("<namespace>/<name>") in other processes.
	Proxies func() map[string][]GatewayProxy
	// Certificates returns the server certificates of listeners, the first to expire first.
	Certificates func() []Certificate
	// Overrides returns the settings that policies ("<kind> <namespace>/<name>") replace.
	Overrides func() map[string][]Override
	// Explain answers a question; an error is about the question. Calls do not overlap.
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

	explaining chan struct{} // contains one element while Explain is called
	dumping    chan struct{} // contains one element while all objects, or the configuration, are encoded

	reading sync.Mutex // guards the following fields
	// read are the certificates as of readAt.
	read   []Certificate
	readAt time.Time

	looking chan struct{} // has capacity one; the goroutine that has added an element may use the following fields. reading is locked after it
	// inventory is what was read of the objects, and forgetting the timer that drops it.
	inventory  inventory
	forgetting *time.Timer
	// complained are the problems in conditions of the objects in judged.
	judged     []any
	complained []finding
}

// Listen binds the address; an error names --admin-address. Connections wait until Serve is called.
func Listen(o Options) (*Server, error) {
	if o.Address == "" {
		o.Address = DefaultAddress
	}
	l, err := o.Listener, error(nil)
	if l == nil {
		l, err = net.Listen("tcp", o.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("admin server: cannot listen: %w; choose another address with %s (port 0 takes a free one)", err, cmp.Or(o.Flag, "--admin-address"))
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
		// Clients that disconnect are not logged.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s, nil
}

// SyscallConn is for passing the listening socket to another process.
func (s *Server) SyscallConn() (syscall.RawConn, error) {
	if l, ok := s.listener.(syscall.Conn); ok {
		return l.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Release stops listening. Requests on existing connections, including those that have sent nothing yet, are answered until
// Shutdown, which must be called afterwards.
func (s *Server) Release() {
	s.released.Store(true)
	s.http.SetKeepAlivesEnabled(false)
	s.listener.Close()
}

// Address returns the address of Options.
func (s *Server) Address() string { return s.options.Address }

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Exposed reports whether the state can be read from other hosts.
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
	s.listener.Close() // in case Serve was never called
	if err != nil {
		s.http.Close()
		return fmt.Errorf("admin server: requests were cut off: %w", err)
	}
	return nil
}
