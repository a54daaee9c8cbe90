package cli

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"embed"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"
)

//go:embed example/*.yaml
var exampleTemplates embed.FS

// The files of the example, in the order they are written.
const (
	exampleGateway     = "gateway.yaml"
	exampleBackends    = "backends.yaml"
	exampleCertificate = "certificate.yaml"
	exampleRoutes      = "routes.yaml"
	exampleCAFile      = "demo.crt" // not a manifest, but for curl --cacert
)

const exampleHost = "demo.example.com"

// certificateLife is how long the example's certificate is valid; a certificate that is valid for less than spare is replaced at the
// next start.
const (
	certificateLife  = 365 * 24 * time.Hour
	certificateSpare = 24 * time.Hour
)

// exampleValues are the values of the templates.
type exampleValues struct {
	HTTP, HTTPS      int // ports of the Gateway
	Blue, Green      int // ports of the echo backends
	Certificate, Key string
	Loopback         bool // the Gateway listens on 127.0.0.1, regardless of --bind
}

// example is the folder that moongate demo serves. A file that the user has edited is never written again.
type example struct {
	dir  string
	bind []string // addresses on which the Gateway listens; empty means 127.0.0.1
}

// address returns an address at which the Gateway can be reached.
func (e example) address() string {
	for _, text := range e.bind {
		switch ip, err := netip.ParseAddr(text); {
		case err != nil:
		case !ip.IsUnspecified():
			return text
		case len(e.bind) == 1 && ip.Is6():
			return "::1"
		}
	}
	return "127.0.0.1"
}

func (e example) path(name string) string { return filepath.Join(e.dir, name) }

// The first line of a file contains the digest of the rest, which shows whether the file was edited.
var stampPattern = regexp.MustCompile(`^# Written by moongate demo \(([0-9a-f]{16})\)`)

func stamp(text []byte) string {
	sum := sha256.Sum256(text)
	return fmt.Sprintf("# Written by moongate demo (%s). Edit it: an edited file stays as you left it.\n", hex.EncodeToString(sum[:8]))
}

// edited reports whether the file exists and was changed since it was written.
func (e example) edited(name string) (bool, error) {
	text, err := os.ReadFile(e.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found := stampPattern.FindSubmatch(text)
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return found == nil || !strings.Contains(stamp(rest), string(found[1])), nil
}

// write writes the file from its template, unless the user has edited it.
func (e example) write(name string, values exampleValues) error {
	edited, err := e.edited(name)
	if err != nil || edited {
		return err
	}
	tmpl, err := template.ParseFS(exampleTemplates, "example/"+name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := tmpl.Execute(&text, values); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if name == exampleCertificate {
		mode = 0o600 // it contains a private key
	}
	return replaceFile(e.path(name), append([]byte(stamp(text.Bytes())), text.Bytes()...), mode)
}

// writeCertificate creates a new certificate, unless there is one that is valid for long enough.
func (e example) writeCertificate() error {
	edited, err := e.edited(exampleCertificate)
	if err != nil || edited || e.certificateLasts() {
		return err
	}
	certPEM, keyPEM, err := selfSigned(certificateLife, exampleHost)
	if err != nil {
		return err
	}
	values := exampleValues{Certificate: indent(certPEM), Key: indent(keyPEM)}
	if err := e.write(exampleCertificate, values); err != nil {
		return err
	}
	return replaceFile(e.path(exampleCAFile), certPEM, 0o644)
}

// certificateLasts reports whether the certificate of the last start is valid for long enough.
func (e example) certificateLasts() bool {
	text, err := os.ReadFile(e.path(exampleCAFile))
	if err != nil {
		return false
	}
	if _, err := os.Stat(e.path(exampleCertificate)); err != nil {
		return false
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && time.Until(cert.NotAfter) > certificateSpare
}

func indent(text []byte) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ")
}

// replaceFile replaces a file atomically: a reader gets the old or the new content, never a part.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".moongate-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails after the rename, because the file no longer has that name
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(mode), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
