package admin

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// endpoint is one path that the server answers.
type endpoint struct {
	path        string // with a trailing slash it stands for all below it too
	description string
	serve       func(*Server, http.ResponseWriter, *http.Request)
}

// endpoints returns the table; it is a function because the page of unknown paths prints it.
func endpoints() []endpoint {
	return []endpoint{
		{"/", "dashboard", (*Server).dashboard},
		{"/healthz", "200 while the process is alive", (*Server).healthz},
		{"/readyz", "200 once everything accepted is served, else 503 and why not", (*Server).readyz},
		{"/metrics", "Prometheus metrics", (*Server).serveMetrics},
		{"/status", "every object with its status, and the problems of the input, as JSON", (*Server).status},
		{"/config", "the configuration in force as JSON, secrets redacted", (*Server).config},
		{"/debug/pprof/", "profiles of the process", (*Server).profile},
	}
}

// endpoints are those that this server answers.
func (s *Server) endpoints() []endpoint {
	if s.options.Paths == nil {
		return endpoints()
	}
	return slices.DeleteFunc(endpoints(), func(e endpoint) bool { return !slices.Contains(s.options.Paths, e.path) })
}

// ServeHTTP is part of http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setWriteDeadline(w, replyTimeout)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	if s.loopback && !isLoopbackHost(r.Host) {
		http.Error(w, "This server is bound to a loopback address and answers for localhost, 127.0.0.1 and [::1] only, not for the Host of this request.", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "The admin server only reads: use GET or HEAD.", http.StatusMethodNotAllowed)
		return
	}
	for _, e := range s.endpoints() {
		if r.URL.Path == e.path || e.path != "/" && strings.HasSuffix(e.path, "/") &&
			(strings.HasPrefix(r.URL.Path, e.path) || r.URL.Path+"/" == e.path) {
			e.serve(s, w, r)
			return
		}
	}
	s.notFound(w)
}

func (s *Server) notFound(w http.ResponseWriter) {
	var b strings.Builder
	b.WriteString("There is nothing here. Endpoints:\n\n")
	for _, e := range s.endpoints() {
		fmt.Fprintf(&b, "  %-14s %s\n", e.path, e.description)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	io.WriteString(w, b.String())
}

// isLoopbackHost guards against DNS rebinding: a page of another site may make a browser resolve its
// own name to 127.0.0.1, but it cannot make it send another Host than that name.
func isLoopbackHost(host string) bool {
	if host == "" { // HTTP/1.0, no browser
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	// It fails only where the connection is gone, which the next write shows.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.ready(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "not ready: "+err.Error()+"\n")
		return
	}
	io.WriteString(w, "ready\n")
}

func (s *Server) ready() error {
	if s.options.Ready == nil {
		return fmt.Errorf("the gateway has not started")
	}
	return s.options.Ready()
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.metrics == nil {
		http.Error(w, "Metrics are not collected.", http.StatusServiceUnavailable)
		return
	}
	s.metrics.ServeHTTP(w, r)
}

func (s *Server) profile(w http.ResponseWriter, r *http.Request) {
	seconds, _ := strconv.Atoi(r.FormValue("seconds"))
	length := time.Duration(seconds) * time.Second
	if length < 0 || length > maxProfile {
		http.Error(w, fmt.Sprintf("A profile takes at most %.0f seconds.", maxProfile.Seconds()), http.StatusBadRequest)
		return
	}
	setWriteDeadline(w, max(length, replyTimeout)+replyTimeout)
	// The index of profiles brings a small style and no script.
	switch r.URL.Path {
	case "/debug/pprof":
		http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
	case "/debug/pprof/cmdline":
		pprof.Cmdline(w, r)
	case "/debug/pprof/profile":
		pprof.Profile(w, r)
	case "/debug/pprof/symbol":
		pprof.Symbol(w, r)
	case "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
