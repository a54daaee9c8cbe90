package admin

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Backend is a backend in the response of /backends.
type Backend struct {
	Name string `json:"name"` // "<kind>/<namespace>/<name>/<port>", followed by the policy for which it is made
	// Panic is set if so few endpoints are healthy that health is ignored.
	Panic bool `json:"panic,omitempty"`
	// ProxyZone is the zone of the proxy, "" if it is not known.
	ProxyZone string `json:"proxyZone,omitempty"`
	// Zones are the shares of requests by zone; the rest up to 1 goes to all endpoints. Empty if zones are ignored.
	Zones     []ZoneShare `json:"zones,omitempty"`
	Endpoints []Endpoint  `json:"endpoints"`
}

// ZoneShare is the share, from 0 to 1, of requests that go to endpoints in a zone.
type ZoneShare struct {
	Zone  string  `json:"zone"`
	Share float64 `json:"share"`
}

// Endpoint is one endpoint of a Backend.
type Endpoint struct {
	Address string `json:"address"`
	// Health is healthy, avoided (a connect has just failed), ejected (for its responses), unhealthy (by a health check) or unknown
	// (not checked yet).
	Health string `json:"health"`
	// Until is when an avoided or ejected endpoint is tried again; nil if there is no such time.
	Until *time.Time `json:"until,omitempty"`
	// Terminating is set if the endpoint is terminating: it is selected only if no other is ready.
	Terminating bool `json:"terminating,omitempty"`
	// Weight is the share in load balancing, from 0 to 1; with 0 it is not selected.
	Weight float64 `json:"weight"`
	Zone   string  `json:"zone,omitempty"`
	// RequestsInFlight counts requests, and streams of L4 connections; Idle are the Connections that are waiting for a request.
	RequestsInFlight int64 `json:"requestsInFlight"`
	Connections      int64 `json:"connections"`
	Idle             int64 `json:"idle"`
	ConnectErrors    int64 `json:"connectErrors"` // since the endpoint was added
}

func (s *Server) backends(w http.ResponseWriter, r *http.Request) {
	end := s.beginDump(r)
	if end == nil {
		return
	}
	defer end()
	all := []Backend{}
	if s.options.Backends != nil {
		all = append(all, s.options.Backends()...)
	}
	all = Narrow(all, r.FormValue("q"))
	if r.FormValue("format") != "text" {
		writeJSON(w, all)
		return
	}
	var out bytes.Buffer
	_ = PrintBackends(&out, all, time.Now()) // a Buffer never returns an error
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write(out.Bytes())
}

// Narrow returns the backends whose names, or whose endpoints' addresses or zones, contain text.
func Narrow(all []Backend, text string) []Backend {
	return slices.DeleteFunc(all, func(b Backend) bool {
		return !strings.Contains(b.Name, text) && !slices.ContainsFunc(b.Endpoints, func(e Endpoint) bool { return strings.Contains(e.Address, text) || e.Zone == text })
	})
}

// PrintBackends prints a table with a line for each endpoint.
func PrintBackends(w io.Writer, all []Backend, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	for i, b := range all {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t, b.Name+b.note())
		if len(b.Endpoints) == 0 {
			fmt.Fprintln(t, "  no endpoints")
			continue
		}
		fmt.Fprintln(t, "  ENDPOINT\tHEALTH\tWEIGHT\tZONE\tREQUESTS\tCONNECTIONS\tCONNECT ERRORS")
		for _, e := range b.Endpoints {
			health := e.Health
			if e.Until != nil {
				health += " for " + max(e.Until.Sub(now), 0).Round(100*time.Millisecond).String()
			}
			if e.Terminating {
				health += ", terminating"
			}
			zone := e.Zone
			if zone == "" {
				zone = "-"
			}
			fmt.Fprintf(t, "  %s\t%s\t%.3g\t%s\t%d\t%d (%d idle)\t%d\n", e.Address, health, e.Weight, zone, e.RequestsInFlight, e.Connections, e.Idle, e.ConnectErrors)
		}
	}
	return t.Flush()
}

// note returns what is printed next to the name.
func (b *Backend) note() string {
	var parts []string
	if b.Panic {
		parts = append(parts, "too few are healthy: health is ignored")
	}
	if len(b.Zones) > 0 {
		var shares []string
		for _, z := range b.Zones {
			name := z.Zone
			if name == "" {
				name = "none"
			}
			shares = append(shares, fmt.Sprintf("%s %.3g%%", name, 100*z.Share))
		}
		parts = append(parts, "zones: "+strings.Join(shares, ", "))
	}
	if b.ProxyZone != "" {
		parts = append(parts, "the proxy is in "+b.ProxyZone)
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}
