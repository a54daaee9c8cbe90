package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Certificate is what everybody may know of a certificate that listeners show.
type Certificate struct {
	Name      string    `json:"name"` // "Secret <namespace>/<name>"
	Subject   string    `json:"subject,omitempty"`
	Issuer    string    `json:"issuer,omitempty"`
	Names     []string  `json:"names"` // DNS names and addresses that it is for
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Listeners []string  `json:"listeners"` // that show it, as "<gateway>/<listener>"
	// Problem is why nothing is known of it but its name; "" where that is known.
	Problem string `json:"problem,omitempty"`
}

// certificateList is what /certificates answers.
type certificateList struct {
	Certificates []Certificate `json:"certificates"`
	More         int           `json:"more,omitempty"` // that do not fit
}

func (s *Server) certificates(w http.ResponseWriter, r *http.Request) {
	writeCompactJSON(w, s.listCertificates(r.FormValue("q")))
}

// listCertificates are those that have text in name, names or listeners; the first to expire first.
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

// certificatesFor is for how long certificates that were read are shown: reading thousands of them costs more than all else.
const certificatesFor = 5 * time.Second

// readCertificates are those of now, or of a moment ago; nobody may modify them.
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

// finding is what is the matter with the certificate, if anything is.
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
	case c.NotAfter.Sub(now) < soon && c.NotAfter.Sub(c.NotBefore) > 2*soon: // short-lived ones are renewed in time by who makes them
		f.Severity, f.Message = "warning", fmt.Sprintf("the certificate expires on %s, in %d days", day, int(c.NotAfter.Sub(now)/(24*time.Hour)))
	default:
		return f, false
	}
	return f, true
}

// State is how long the certificate is valid, for people.
func (c Certificate) State() string {
	if f, ok := c.finding(time.Now()); ok {
		return f.Message
	}
	return fmt.Sprintf("valid for %d days", int(time.Until(c.NotAfter)/(24*time.Hour)))
}
