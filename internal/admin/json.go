package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// beginDump waits until no other complete dump is being made, because a dump is in memory several times. It returns nil if the
// client disconnects before; else the returned function must be called at the end.
func (s *Server) beginDump(r *http.Request) (end func()) {
	select {
	case s.dumping <- struct{}{}:
		return func() { <-s.dumping }
	case <-r.Context().Done():
		return nil
	}
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	end := s.beginDump(r)
	if end == nil {
		return
	}
	defer end()
	var status Status
	if s.options.Status != nil {
		status = s.options.Status()
	}
	if status.Items == nil {
		status.Items = []any{}
	}
	if status.Problems == nil {
		status.Problems = []Problem{}
	}
	writeJSON(w, status)
}

func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	if s.options.Config == nil {
		http.Error(w, "There is no configuration yet.", http.StatusServiceUnavailable)
		return
	}
	end := s.beginDump(r)
	if end == nil {
		return
	}
	defer end()
	v, err := s.options.Config()
	if err != nil {
		http.Error(w, "The configuration cannot be printed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, v)
}

// writeJSON writes v indented, in its own order, and without secrets.
func writeJSON(w http.ResponseWriter, v any) {
	raw, err := json.Marshal(v)
	if err == nil {
		raw, err = redact(raw)
	}
	if err != nil {
		http.Error(w, "This cannot be printed as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		http.Error(w, "This cannot be printed as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	out.WriteByte('\n')
	w.Header().Set("Content-Type", "application/json")
	w.Write(out.Bytes())
}

// writeCompactJSON writes a value without secrets, for a script.
func writeCompactJSON(w http.ResponseWriter, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "This cannot be printed as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(raw)
}

const redacted = `"(redacted)"`

// secretKeys are names whose values are never shown, in lower case without separators.
var secretKeys = map[string]bool{"keypem": true, "privatekey": true, "tlskey": true, "password": true, "token": true, "stringdata": true}

var dropSeparators = strings.NewReplacer("_", "", "-", "", ".", "")

func isSecretKey(key string) bool { return secretKeys[strings.ToLower(dropSeparators.Replace(key))] }

// redact replaces the values of secret names, and private keys anywhere; it keeps the order.
func redact(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	r := redactor{decoder: d}
	r.out.Grow(len(raw))
	if err := r.value(false); err != nil {
		return nil, err
	}
	return r.out.Bytes(), nil
}

type redactor struct {
	decoder *json.Decoder
	out     bytes.Buffer
	path    []string // the names that lead to the present value
}

// hides reports whether the value of a name is not shown: that of secret names, and those of header fields that an XTelemetryPolicy
// sends to a collector, most of which are credentials.
func (r *redactor) hides(key string) bool {
	n := len(r.path)
	return isSecretKey(key) || key == "value" && n >= 2 && r.path[n-1] == "headers" && r.path[n-2] == "provider"
}

// value copies the next value; a hidden one is replaced.
func (r *redactor) value(hidden bool) error {
	if hidden {
		var skipped json.RawMessage
		if err := r.decoder.Decode(&skipped); err != nil {
			return err
		}
		r.out.WriteString(redacted)
		return nil
	}
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return r.scalar(token)
	}
	r.out.WriteByte(byte(delim))
	for first := true; r.decoder.More(); first = false {
		if !first {
			r.out.WriteByte(',')
		}
		hide := false
		if delim == '{' {
			key, err := r.decoder.Token()
			if err != nil {
				return err
			}
			if err := r.scalar(key); err != nil {
				return err
			}
			r.out.WriteByte(':')
			name := fmt.Sprint(key)
			hide = r.hides(name)
			r.path = append(r.path, name)
		}
		if err := r.value(hide); err != nil {
			return err
		}
		if delim == '{' {
			r.path = r.path[:len(r.path)-1]
		}
	}
	end, err := r.decoder.Token()
	if err != nil {
		return err
	}
	r.out.WriteByte(byte(end.(json.Delim)))
	return nil
}

func (r *redactor) scalar(token json.Token) error {
	if s, ok := token.(string); ok && holdsPrivateKey(s) {
		r.out.WriteString(redacted)
		return nil
	}
	b, err := json.Marshal(token)
	r.out.Write(b)
	return err
}

// holdsPrivateKey reports whether s contains a PEM private key, in plain text or in base64, as bytes are encoded in JSON.
func holdsPrivateKey(s string) bool {
	const label = "PRIVATE KEY-----"
	if strings.Contains(s, label) {
		return true
	}
	if !strings.Contains(s, "LS0tLS") { // "-----" in base64 at the start of three bytes
		return false
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && bytes.Contains(b, []byte(label))
}
