package admin

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"sync"
)

//go:embed dashboard.html
var dashboardHTML string

// dashboardPage is parsed when first looked at: most processes never show it.
var dashboardPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("dashboard").Parse(dashboardHTML))
})

// maxRows bounds each table of the page; ?q= narrows it down.
const maxRows = 500

// page is what the template shows.
type page struct {
	Version  string
	NotReady string // why; "" is ready
	Query    string
	Gateways []gatewayRow
	Routes   []routeRow
	Others   []objectRow
	Problems []Problem
	Ignored  []Problem
	Outcomes []outcomeRow
	Total    uint64 // requests
	Hidden   int    // routes that do not fit
	Failed   string // why the objects cannot be shown
}

type gatewayRow struct {
	Name, Class string
	Addresses   []string
	Conditions  []badge
	Listeners   []listenerRow
}

type listenerRow struct {
	Name, Protocol, Hostname string
	Port                     int
	AttachedRoutes           int
	Requests                 uint64
	Conditions               []badge
}

type routeRow struct {
	Kind, Name string
	Hostnames  []string
	Parents    []parentRow
	Requests   uint64
	trouble    bool
}

type parentRow struct {
	Name       string
	Conditions []badge
}

type objectRow struct {
	Kind, Name string
	Conditions []badge
}

type outcomeRow struct {
	Reason, Code string
	Requests     uint64
}

// badge is one condition.
type badge struct {
	Type, Status, Reason, Message string
	Class                         string // ok, bad or unknown
}

func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	p := page{Version: s.options.Version, Query: r.FormValue("q")}
	if err := s.ready(); err != nil {
		p.NotReady = err.Error()
	}
	counts := countRequests(s.options.Gatherer)
	p.Total, p.Outcomes = counts.total, counts.outcomes()
	if s.options.Status != nil {
		status := s.options.Status()
		for _, problem := range status.Problems {
			if problem.Ignored {
				p.Ignored = append(p.Ignored, problem)
			} else {
				p.Problems = append(p.Problems, problem)
			}
		}
		if err := p.add(status.Items, counts); err != nil {
			p.Failed = err.Error()
		}
	}
	var out bytes.Buffer
	if err := dashboardPage().Execute(&out, &p); err != nil {
		http.Error(w, "The page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	w.Write(out.Bytes())
}
