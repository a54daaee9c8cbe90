package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// rule leads a path to a backend.
type rule struct {
	path  string
	exact bool
	host  string
}

func (r rule) matches(path string) bool {
	if r.exact {
		return path == r.path
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(r.path, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// gateway serves one Gateway, at a port of its own.
type gateway struct {
	server   *http.Server
	listener net.Listener
	rules    atomic.Pointer[[]rule]
}

// listen starts serving; HTTPS listeners, which the suite's base has, get plain
// HTTP too, and no test looks.
func listen() (*gateway, error) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	g := &gateway{listener: listener}
	g.rules.Store(&[]rule{})
	g.server = &http.Server{Handler: g}
	go g.server.Serve(listener) // until close
	return g, nil
}

func (g *gateway) port() int32 { return int32(g.listener.Addr().(*net.TCPAddr).Port) }

func (g *gateway) close() { g.server.Close() }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, rule := range *g.rules.Load() {
		if !rule.matches(r.URL.Path) {
			continue
		}
		proxy := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: rule.host})
			p.Out.Host = p.In.Host
		}}
		proxy.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}
