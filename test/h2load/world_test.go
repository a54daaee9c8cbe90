//go:build linux

package h2load

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/moongate-dev/moongate/test/bench/origin"
)

const host = "load.example.test"

//go:embed testdata
var files embed.FS

var templates = template.Must(template.ParseFS(files, "testdata/*.yaml"))

// world is a running Moongate, what it serves, and the folder that says so.
type world struct {
	t                         *testing.T
	dir                       string
	plain, tls, admin, origin int // ports
	certificates              [2]certificate
	version                   int
}

type certificate struct{ name, chain, key string } // the last two are base64 of PEM

// newWorld builds Moongate and starts it, with an origin.
func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "manifests"), origin: startOrigin(t)}
	ports := freePorts(t, 3)
	w.plain, w.tls, w.admin = ports[0], ports[1], ports[2]
	for i := range w.certificates {
		w.certificates[i] = newCertificate(t, fmt.Sprintf("certificate-%d", i))
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("gateway.yaml", map[string]int{"Plain": w.plain, "TLS": w.tls, "Origin": w.origin})
	w.next()
	binary := filepath.Join(t.TempDir(), "moongate")
	build := exec.Command("go", "build", "-o", binary, "./cmd/moongate")
	build.Dir = "../.." // the product's module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	w.start(exec.Command(binary, "run", "-f", w.dir, "--access-log", "off", "--drain-timeout", "1s",
		"--admin-address", fmt.Sprintf("127.0.0.1:%d", w.admin)))
	w.waitServed(w.version)
	return w
}

func (w *world) start(cmd *exec.Cmd) {
	var log bytes.Buffer // read after the end only
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("moongate: %v", err)
		}
		if w.t.Failed() {
			w.t.Logf("log of moongate:\n%s", log.Bytes())
		}
	})
}

// write replaces a file at once.
func (w *world) write(name string, data any) {
	var text bytes.Buffer
	err := templates.ExecuteTemplate(&text, name, data)
	temporary := filepath.Join(filepath.Dir(w.dir), name)
	if err == nil {
		err = os.WriteFile(temporary, text.Bytes(), 0o600)
	}
	if err == nil {
		err = os.Rename(temporary, filepath.Join(w.dir, name))
	}
	if err != nil {
		w.t.Error(err)
	}
}

// next writes another version of the route, the certificate and the endpoints. Two of three endpoints stay.
func (w *world) next() {
	w.version++
	w.write("route.yaml", map[string]int{"Version": w.version})
	c := w.certificates[w.version%2]
	w.write("secret.yaml", map[string]string{"Certificate": c.chain, "Key": c.key})
	var endpoints []string
	for i := range 3 {
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.%d", 2+(w.version+i)%4))
	}
	w.write("endpoints.yaml", map[string]any{"Origin": w.origin, "Endpoints": endpoints})
}

// rewrite calls next ten times a second until stop, which returns the last version.
func (w *world) rewrite() (stop func() int) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				w.next()
			}
		}
	}()
	return func() int {
		close(end)
		<-ended
		return w.version
	}
}

var appliedLine = regexp.MustCompile(`(?m)^moongate_config_apply_duration_seconds_count (\d+)$`)

// applied is how many configurations were put in force so far.
func (w *world) applied() int {
	w.t.Helper()
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", w.admin))
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	m := appliedLine.FindSubmatch(text)
	if m == nil {
		w.t.Fatal("the metric of configurations is missing")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// startOrigin serves on 127.0.0.2 to 127.0.0.5, one port of all, until the test binary ends.
func startOrigin(t *testing.T) (port int) {
	for i := range 4 {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.%d:%d", 2+i, port))
		if err != nil {
			t.Fatal(err)
		}
		port = l.Addr().(*net.TCPAddr).Port
		// The origin owns a descriptor of its own.
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		l.Close()
		syscall.SetNonblock(fd, true)
		s, err := origin.New()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.HTTP1(fd); err != nil {
			t.Fatal(err)
		}
		go s.Serve()
	}
	return port
}

// freePorts are below those that the system gives to outgoing connections, of which this test makes many.
func freePorts(t *testing.T, n int) (ports []int) {
	for port := 10000 + mathrand.IntN(4000); len(ports) < n; port++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return ports
}

func newCertificate(t *testing.T, name string) certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	chain, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return certificate{name, encode("CERTIFICATE", chain), encode("PRIVATE KEY", der)}
}
