package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Certificate is the public information about a server certificate of listeners.
type Certificate struct {
	Name      string    `json:"name"` // "Secret <namespace>/<name>"
	Subject   string    `json:"subject,omitempty"`
	Issuer    string    `json:"issuer,omitempty"`
	Names     []string  `json:"names"` // DNS names and addresses for which it is valid
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Listeners []string  `json:"listeners"` // that use it, as "<gateway>/<listener>"
	// Problem is why only its name is known; "" if the rest is known.
	Problem string `json:"problem,omitempty"`
}

// certificateList is the response of /certificates.
type certificateList struct {
	Certificates []Certificate `json:"certificates"`
	More         int           `json:"more,omitempty"` // number of those that do not fit
}

func (s *Server) certificates(w http.ResponseWriter, r *http.Request) {
	writeCompactJSON(w, s.listCertificates(r.FormValue("q")))
}

// listCertificates returns those whose name, names or listeners contain text; the first to expire first.
func (s *Server) listCertificates(text string) certificateList {
	list := certificateList{Certificates: []Certificate{}}
	text = strings.ToLower(text)
	for _, c := range s.readCertificates() {
		if !strings.Contains(strings.ToLower(c.Name+" "+strings.Join(c.Names, " ")+" "+strings.Join(c.Listeners, " ")), text) {
			continue
		}
		if len(list.Certificates) == maxRows {
			list.More++
			continue
		}
		c.Names, c.Listeners = c.Names[:min(len(c.Names), maxRows)], c.Listeners[:min(len(c.Listeners), maxRows)]
		list.Certificates = append(list.Certificates, c)
	}
	return list
}

// certificatesFor is how long certificates that were read are cached: reading thousands of them is expensive.
const certificatesFor = 5 * time.Second

// readCertificates returns the present certificates, possibly from the cache; they must not be modified.
func (s *Server) readCertificates() []Certificate {
	if s.options.Certificates == nil {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if now := time.Now(); now.Sub(s.readAt) > certificatesFor {
		s.read, s.readAt = s.options.Certificates(), now
	}
	return s.read
}

// finding returns what is wrong with the certificate, if anything is.
func (c *Certificate) finding(now time.Time) (finding, bool) {
	day := c.NotAfter.UTC().Format(time.DateOnly)
	f := finding{Severity: "error", Object: c.Name, Remedy: "renew it"}
	switch {
	case c.Problem != "":
		f.Message, f.Remedy = c.Problem, "put a PEM certificate into the Secret"
	case now.After(c.NotAfter):
		f.Message = "the certificate expired on " + day + ", so clients reject it"
	case now.Before(c.NotBefore):
		f.Message, f.Remedy = "the certificate is not valid before "+c.NotBefore.UTC().Format(time.DateOnly)+", so clients reject it", "use another until then, or correct this machine's clock"
	case c.NotAfter.Sub(now) < soon && c.NotAfter.Sub(c.NotBefore) > 2*soon: // short-lived certificates are renewed in time by their issuer
		f.Severity, f.Message = "warning", fmt.Sprintf("the certificate expires on %s, in %d days", day, int(c.NotAfter.Sub(now)/(24*time.Hour)))
	default:
		return f, false
	}
	return f, true
}

// State returns how long the certificate is valid, in text.
func (c Certificate) State() string {
	if f, ok := c.finding(time.Now()); ok {
		return f.Message
	}
	return fmt.Sprintf("valid for %d days", int(time.Until(c.NotAfter)/(24*time.Hour)))
}
