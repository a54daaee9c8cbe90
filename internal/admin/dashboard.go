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

// The page is whole without its script, which keeps it up to date and answers in place.
var (
	//go:embed dashboard.html
	dashboardHTML string
	//go:embed dashboard.js
	dashboardScript []byte
	//go:embed dashboard.css
	dashboardStyle []byte
)

// dashboardPage is parsed when first looked at: most processes never show it.
var dashboardPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("dashboard").Parse(dashboardHTML))
})

// dashboardPolicy lets the page load its own style and script and ask its own server, and nothing else; text never becomes elements.
const dashboardPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// page is what the template shows.
type page struct {
	*topology
	Certificates certificateList
	Explains     bool
	Gatewayish   bool // explain asks for a Gateway
}

// Link is the address of the page with other routes.
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

// First and the others are about the page of routes: numbers from 1 on, and offsets, negative where there is none.
func (p *page) First() int { return min(p.Offset+1, p.Matching) }

// Last is the number of the last route of the page.
func (p *page) Last() int { return p.Offset + len(p.Routes) }

// Previous is the offset of the page before.
func (p *page) Previous() int {
	if p.Offset == 0 {
		return -1
	}
	return max(p.Offset-p.Limit, 0)
}

// Next is the offset of the page behind.
func (p *page) Next() int {
	if p.Last() >= p.Matching {
		return -1
	}
	return p.Last()
}

// Rest is what a policy says of fields, for people.
func (o Override) Rest() string { return strings.Join(o.Fields, ", ") }

func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	t := s.look(r.Context(), selectionOf(r))
	if t == nil {
		return // the browser has gone
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
