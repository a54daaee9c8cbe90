package admin

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// The page is complete without its script, which updates it and shows results without reloading.
var (
	//go:embed dashboard.html
	dashboardHTML string
	//go:embed dashboard.js
	dashboardScript []byte
	//go:embed dashboard.css
	dashboardStyle []byte
)

// dashboardPage is parsed when it is first needed: most processes never show it.
var dashboardPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("dashboard").Parse(dashboardHTML))
})

// dashboardPolicy allows the page to load its own style and script and to query its own server, and nothing else.
const dashboardPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// page is the data of the template.
type page struct {
	*topology
	Certificates certificateList
	Explains     bool
	Gatewayish   bool // explain needs a Gateway
}

// Link returns the URL of the page with other routes.
func (p *page) Link(offset int) string {
	v := url.Values{"offset": {strconv.Itoa(offset)}}
	if p.Query != "" {
		v.Set("q", p.Query)
	}
	if p.Trouble {
		v.Set("trouble", "1")
	}
	if p.Limit != maxPageRows {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	return "/?" + v.Encode() + "#routes"
}

// First, Last, Previous and Next are for paging through routes. First returns the number of the first route of the page, from 1.
func (p *page) First() int { return min(p.Offset+1, p.Matching) }

// Last returns the number of the last route of the page.
func (p *page) Last() int { return p.Offset + len(p.Routes) }

// Previous returns the offset of the previous page, negative if there is none.
func (p *page) Previous() int {
	if p.Offset == 0 {
		return -1
	}
	return max(p.Offset-p.Limit, 0)
}

// Next returns the offset of the next page, negative if there is none.
func (p *page) Next() int {
	if p.Last() >= p.Matching {
		return -1
	}
	return p.Last()
}

// Rest returns the fields in text.
func (o Override) Rest() string { return strings.Join(o.Fields, ", ") }

func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	t := s.look(r.Context(), selectionOf(r))
	if t == nil {
		return // the client has disconnected
	}
	p := page{topology: t, Certificates: s.listCertificates(r.FormValue("q")), Explains: s.options.Explain != nil, Gatewayish: s.options.Uncounted}
	var out bytes.Buffer
	if err := dashboardPage().Execute(&out, &p); err != nil {
		http.Error(w, "The page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", dashboardPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	w.Write(out.Bytes())
}

func (s *Server) script(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Write(dashboardScript)
}

func (s *Server) style(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Write(dashboardStyle)
}
