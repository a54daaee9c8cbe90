package admin

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// Maximums of a question.
const (
	maxQuestionURL     = 8 << 10
	maxQuestionHeaders = 32
)

// Question is a request, a connection or a datagram to be explained.
type Question struct {
	Method  string   // "" for GET, and for connections
	URL     string   // such as http://example.com:8080/, tcp://, tls:// or udp://
	Headers []string // as "Name: value"
	Gateway string   // whose proxies receive it, "<namespace>/<name>"; "" if there is only one, or if one process serves all
}

// Explanation is the answer.
type Explanation struct {
	Steps any    `json:"steps"` // as JSON output of moongate explain
	Text  string `json:"text"`  // the same in text
}

// ownHeader is a field that the page's script sends. Browsers do not let pages of other sites send it without asking this server
// first.
const ownHeader = "X-Moongate-Page"

// explain answers a question without sending a request.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	if s.options.Explain == nil {
		http.Error(w, "This process has no configuration to explain requests by.", http.StatusNotFound)
		return
	}
	_ = r.ParseForm() // malformed input results in missing values below
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
	select { // one at a time, because each builds all tables
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

// refuse returns why a question is invalid, "" if it is valid.
func (q *Question) refuse() string {
	control := func(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
	header := func(s string) bool { return control(strings.ReplaceAll(s, "\t", "")) } // a value may contain tabs (RFC 9110 section 5.5)
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
