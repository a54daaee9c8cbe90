package cli

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// echoReply is the response of an echo backend of the demo.
type echoReply struct {
	Backend string              `json:"backend"`
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Host    string              `json:"host"`
	Headers map[string][]string `json:"headers"`
}

// serveEcho answers every request on ln with the request as the backend received it, until the returned server is closed.
func serveEcho(name string, ln net.Listener, log *slog.Logger) *http.Server {
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			reply := json.NewEncoder(w)
			reply.SetEscapeHTML(false)
			reply.SetIndent("", "  ")
			_ = reply.Encode(echoReply{name, r.Method, r.URL.RequestURI(), r.Host, r.Header}) // the client may have disconnected
		}),
	}
	go func() { _ = server.Serve(ln) }() // ends with Close
	return server
}
