package admin

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// What a question may have.
const (
	maxQuestionURL     = 8 << 10
	maxQuestionHeaders = 32
)

// Question is a request, a connection or datagrams to be explained.
type Question struct {
	Method  string   // "" for GET, and for connections
	URL     string   // as http://example.com:8080/, tcp://, tls:// or udp://
	Headers []string // as "Name: value"
	Gateway string   // whose proxies get it, "<namespace>/<name>"; "" where there is one, or one process serves all
}

// Explanation is which way it takes.
type Explanation struct {
	Steps any    `json:"steps"` // as moongate explain prints them in JSON
	Text  string `json:"text"`  // and for people
}

// ownHeader is a field that the page's script sends. Browsers let no page of another site do that without having asked this server first.
const ownHeader = "X-Moongate-Page"

// explain decides a request without sending it.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	if s.options.Explain == nil {
		http.Error(w, "This process has no configuration to explain requests by.", http.StatusNotFound)
		return
	}
	_ = r.ParseForm() // what is malformed is missing below
	q := Question{Method: r.Form.Get("method"), URL: strings.TrimSpace(r.Form.Get("url")), Gateway: r.Form.Get("gateway")}
	for _, field := range r.Form["header"] {
		for line := range strings.Lines(field) {
			if line = strings.TrimSpace(line); line != "" {
				q.Headers = append(q.Headers, line)
			}
		}
	}
	if why := q.refuse(); why != "" {
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	select { // one at a time: each builds all tables
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-r.Context().Done():
		return
	}
	answer, err := s.options.Explain(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Form.Get("format") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte(answer.Text))
		return
	}
	writeJSON(w, answer)
}

// refuse is why a question is not asked, "" where it is.
func (q *Question) refuse() string {
	control := func(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
	header := func(s string) bool { return control(strings.ReplaceAll(s, "\t", "")) } // a value may have tabs (RFC 9110 section 5.5)
	switch {
	case q.URL == "":
		return "Give the URL of the request, as ?url=http://example.com:8080/path."
	case len(q.URL) > maxQuestionURL || len(q.Method) > 64 || len(q.Headers) > maxQuestionHeaders:
		return "The request is too large to be explained here; moongate explain -f has no limits."
	case control(q.URL) || control(q.Method) || strings.ContainsAny(q.Method, " ") || strings.ContainsAny(q.URL, " ") || slices.ContainsFunc(q.Headers, header):
		return "The request has control characters or spaces where there can be none."
	}
	return ""
}
