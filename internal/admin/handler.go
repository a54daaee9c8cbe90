package admin

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// endpoint is one path of the server.
type endpoint struct {
	path        string // with a trailing slash it includes all paths below
	description string
	serve       func(*Server, http.ResponseWriter, *http.Request)
}

// endpoints returns the table; it is a function because the page for unknown paths prints it.
func endpoints() []endpoint {
	return []endpoint{
		{"/", "dashboard", (*Server).dashboard},
		{"/healthz", "200 while the process is alive, else 503 and why it should be restarted", (*Server).healthz},
		{"/readyz", "200 while everything accepted is served, else 503 and why not; with ?exclude=shutdown also while --shutdown-delay passes", (*Server).readyz},
		{"/metrics", "Prometheus metrics", (*Server).serveMetrics},
		{"/status", "every object with its status, and the problems of the input, as JSON", (*Server).status},
		{"/config", "the configuration in force as JSON, secrets redacted", (*Server).config},
		{"/backends", "every backend with the health, weight and zone of its endpoints, as JSON; ?format=text is a table, ?q= narrows it down", (*Server).backends},
		{"/topology", "Gateways, listeners, routes, backends and endpoints with their health, policies, problems, and what was counted, as JSON; ?q= narrows it down, ?trouble=1 to what has trouble, ?offset= and ?limit= choose a page of routes", (*Server).topology},
		{"/certificates", "certificates with their names and expiry, as JSON; ?q= narrows it down", (*Server).certificates},
		{"/explain", "which way a request would take: ?url=, and &method=, &header=Name:value, &gateway=; as JSON, or with &format=text as text", (*Server).explain},
		{"/dashboard.js", "script of the dashboard", (*Server).script},
		{"/dashboard.css", "style of the dashboard", (*Server).style},
		{"/debug/pprof/", "profiles of the process", (*Server).profile},
	}
}

// endpoints returns those that this server has.
func (s *Server) endpoints() []endpoint {
	if s.options.Paths == nil {
		return endpoints()
	}
	return slices.DeleteFunc(endpoints(), func(e endpoint) bool { return !slices.Contains(s.options.Paths, e.path) })
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setWriteDeadline(w, replyTimeout)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	if why := s.refuse(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
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

// refuse returns why a request may come from a web page of another site, or "". A page cannot read responses of another site's
// server, but it can cause a profile to be recorded, and after DNS rebinding (its own name then resolves to this server) it can read
// everything.
func (s *Server) refuse(r *http.Request) string {
	site := r.Header.Get("Sec-Fetch-Site")
	// Browsers set Sec-Fetch-Site, to "none" if the user has entered the URL; scripts cannot set it. Browsers omit it for plain HTTP
	// to hosts other than loopback.
	origin := r.Header.Get("Origin")
	if site != "" && site != "none" && site != "same-origin" || site == "" && origin != "" && !strings.EqualFold(origin, "http://"+r.Host) {
		return "This request comes from a page of another site, which this server does not answer. Enter the address by hand to see it."
	}
	host := hostname(r.Host)
	// An image on any page can request a profile by an IP address; then only the name in User-Agent shows that it is a browser.
	if site == "" && host != "" && !isLoopbackHost(host) && strings.HasPrefix(r.URL.Path+"/", "/debug/pprof/") && !isTool(r.UserAgent()) {
		return "Browsers do not say which page a request beyond loopback comes from, so this server gives them no profiles there. Use go tool pprof or curl, or forward the port and open it on localhost."
	}
	if site == "" && host != "" && !isLoopbackHost(host) && r.URL.Path == "/explain" && !isTool(r.UserAgent()) && r.Header.Get(ownHeader) == "" {
		return "Browsers do not say which page a request beyond loopback comes from, so this server explains there only what its own page asks. Use that with its script, or curl, or forward the port and open it on localhost."
	}
	switch {
	case host == "", isLoopbackHost(host): // without a Host it is HTTP/1.0, and not a browser
	case s.loopback:
		return "This server is bound to a loopback address and answers for localhost, 127.0.0.1 and [::1] only, not for the Host of this request."
	case site == "none", slices.Contains(HealthPaths, r.URL.Path), isLocalHost(host):
	default:
		return "This server shows its state only where it is asked for by an IP address, its machine's name or a name within a cluster, not by the Host of this request, which may be that of another site."
	}
	return ""
}

// isTool reports whether a User-Agent is that of a tool that does not render pages. Not all requests of browsers contain the
// browser's name: those for media do not.
func isTool(agent string) bool {
	return agent == "" || agent == "Wget" || slices.ContainsFunc([]string{"Go-http-client/", "curl/", "Wget/"}, func(tool string) bool { return strings.HasPrefix(agent, tool) })
}

// hostname returns a Host without the port, brackets and the trailing dot.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// isLocalHost reports whether the host cannot be a name of another site: it is an address, a name without a dot, a name that only a
// cluster's DNS has, or that of this host.
func isLocalHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") ||
		strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local") {
		return true
	}
	own, err := os.Hostname()
	return err == nil && strings.EqualFold(own, host)
}

func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	// It fails only if the connection is closed, which the next write reports.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.options.Alive != nil {
		if err := s.options.Alive(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, "not alive: "+err.Error()+"\n")
			return
		}
	}
	io.WriteString(w, "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	err := s.ready()
	if errors.Is(err, ErrShutdown) && slices.Contains(r.URL.Query()["exclude"], "shutdown") {
		err = nil
	}
	if err != nil {
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
	// The index of profiles has a small inline style and no script.
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
