package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// patience bounds every wait for something that must happen; a loaded machine is slow.
const patience = testkit.Patience

// gateway is a running `moongate run` in this process.
type gateway struct {
	t      testing.TB
	dir    string // its manifests
	admin  string
	stderr *testkit.Log
	stop   context.CancelFunc
	ended  chan error
}

// start serves the manifests (file name -> text) until the test ends.
func start(t testing.TB, manifests map[string]string, change ...func(*cli.RunOptions)) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir(), stderr: &testkit.Log{}, ended: make(chan error, 1)}
	for name, text := range manifests {
		g.write(name, text)
	}
	ready := make(chan cli.Running, 1)
	o := cli.RunOptions{
		Files:        []string{g.dir},
		Bind:         []string{"127.0.0.1"},
		AdminAddress: "127.0.0.1:0",
		EngineFlags:  cli.EngineFlags{AccessLog: "off", DrainTimeout: 5 * time.Second, Stdout: io.Discard},
		Stderr:       g.stderr,
		Ready:        func(r cli.Running) { ready <- r },
	}
	for _, c := range change {
		c(&o)
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go func() { g.ended <- cli.Run(ctx, o) }()
	select {
	case r := <-ready:
		g.admin = r.Admin
	case err := <-g.ended:
		t.Fatalf("the gateway ended: %v\n%s", err, g.stderr)
	case <-time.After(3 * patience): // with the race detector thousands of routes take long
		t.Fatalf("the gateway was not ready in %v\n%s", 3*patience, g.stderr)
	}
	t.Cleanup(func() {
		// The gateway would wait a while for what idle clients still send.
		noRedirects.CloseIdleConnections()
		g.end()
	})
	return g
}

// end stops the gateway as SIGTERM does.
func (g *gateway) end() {
	g.stop()
	select {
	case err := <-g.ended:
		if err != nil {
			g.t.Errorf("the gateway ended with %v\n%s", err, g.stderr)
		}
		g.ended <- err // end may be called again
	case <-time.After(patience):
		g.t.Errorf("the gateway did not end\n%s", g.stderr)
	}
	if g.t.Failed() {
		g.t.Logf("log of the gateway:\n%s", g.stderr)
	}
}

// write replaces a manifest in one step, as editors and ConfigMap mounts do.
func (g *gateway) write(name, text string) {
	g.t.Helper()
	temp := filepath.Join(g.dir, "."+name+".tmp")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(g.dir, name)); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) remove(name string) {
	g.t.Helper()
	if err := os.Remove(filepath.Join(g.dir, name)); err != nil {
		g.t.Fatal(err)
	}
}

// object is what tests read of an item of /status.
type object struct {
	Kind     string
	Metadata struct{ Namespace, Name string }
	Status   struct {
		Addresses  []struct{ Value, Routability string }
		Conditions []condition
		Listeners  []struct {
			Name           string
			AttachedRoutes int
			SupportedKinds []struct{ Kind string }
			Conditions     []condition
		}
		Parents []struct {
			ParentRef  struct{ SectionName string }
			Conditions []condition
		}
		Ancestors []struct{ Conditions []condition }
	}
}

type condition struct{ Type, Status, Reason, Message string }

// find looks for a condition "Type=Status/Reason" among those of the object and its parts.
func (o *object) find(want string) bool {
	all := o.Status.Conditions
	for _, l := range o.Status.Listeners {
		all = append(all, l.Conditions...)
	}
	for _, p := range o.Status.Parents {
		all = append(all, p.Conditions...)
	}
	for _, a := range o.Status.Ancestors {
		all = append(all, a.Conditions...)
	}
	for _, c := range all {
		if c.Type+"="+c.Status+"/"+c.Reason == want {
			return true
		}
	}
	return false
}

// status is the object's entry of /status.
func (g *gateway) status(kind, name string) *object {
	g.t.Helper()
	var all struct{ Items []*object }
	text := g.adminGet("/status")
	if err := json.Unmarshal(text, &all); err != nil {
		g.t.Fatalf("/status: %v\n%s", err, text)
	}
	for _, o := range all.Items {
		if o.Kind == kind && o.Metadata.Name == name {
			return o
		}
	}
	return &object{}
}

func (g *gateway) adminGet(path string) []byte {
	g.t.Helper()
	resp, err := http.Get("http://" + g.admin + path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		g.t.Fatalf("%s: %s %v\n%s", path, resp.Status, err, text)
	}
	return text
}

// waitCondition waits until the object has the condition "Type=Status/Reason".
func (g *gateway) waitCondition(kind, name, want string) {
	g.t.Helper()
	testkit.Eventually(g.t, fmt.Sprintf("%s %s has %s", kind, name, want), func() bool { return g.status(kind, name).find(want) })
}

// backend is an echo server on a loopback port.
type backend struct {
	*httptest.Server
	name string
	port int
}

func (b *backend) portText() string { return strconv.Itoa(b.port) }

// echoed is what a backend saw; it is its answer too.
type echoed struct {
	Backend, Method, Path, Host, Body string
	Header                            http.Header
}

// newBackend starts a backend that answers what it saw; also, if not nil, may answer instead.
func newBackend(t testing.TB, name string, also func(http.ResponseWriter, *http.Request) bool) *backend {
	t.Helper()
	b := &backend{name: name}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if also != nil && also(w, r) {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Backend", name)
		json.NewEncoder(w).Encode(echoed{name, r.Method, r.URL.RequestURI(), r.Host, string(body), r.Header})
	}))
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(b.Close)
	return b
}

// ports are others than those of the proxy's tests.
var ports = testkit.Ports{Low: 26000, High: 32000}

// freePort is a loopback port that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	return ports.Free(t)
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body string
	echo echoed // where the body is a backend's
}

// ask is a request; the zero value of a field is what curl would send.
type ask struct {
	method, url, host, body string
	header                  map[string]string
	client                  *http.Client
}

var noRedirects = &http.Client{
	Timeout:       patience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// try sends a request.
func (a ask) try() (*answer, error) {
	req, err := http.NewRequest(a.method, a.url, strings.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	if a.host != "" {
		req.Host = a.host
	}
	for name, value := range a.header {
		req.Header.Set(name, value)
	}
	client := a.client
	if client == nil {
		client = noRedirects
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	out := &answer{Response: resp, body: string(text)}
	if resp.Header.Get("X-Backend") != "" {
		err = json.Unmarshal(text, &out.echo)
	}
	return out, err
}

// do sends a request that must be answered.
func (a ask) do(t testing.TB) *answer {
	t.Helper()
	got, err := a.try()
	if err != nil {
		t.Fatalf("%s %s (Host %q): %v", a.method, a.url, a.host, err)
	}
	return got
}

// manifest builders

const class = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
`

// gatewayWith is the class and Gateway "gw" with the listeners (YAML flow mappings).
func gatewayWith(listeners ...string) string {
	return class + `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: moongate
  listeners:
  - ` + strings.Join(listeners, "\n  - ") + "\n---\n"
}

// httpListener is a listener with a port and a hostname that may be "".
func httpListener(name string, port int, hostname string) string {
	if hostname != "" {
		hostname = fmt.Sprintf(", hostname: %q", hostname)
	}
	return fmt.Sprintf("{name: %s, protocol: HTTP, port: %d%s}", name, port, hostname)
}

// routeTo is an HTTPRoute on Gateway "gw"; spec is what stands under spec besides.
func route(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec:
  parentRefs: [{name: gw}]
%s
---
`, name, spec)
}

// service is a Service with port 80 and an EndpointSlice with the backends' addresses.
func service(namespace, name string, backends ...*backend) string {
	text := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[2]s, namespace: %[1]s}
spec: {ports: [{port: 80}]}
---
`, namespace, name)
	for i, b := range backends {
		text += fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-%[3]d, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{port: %[4]d}]
endpoints: [{addresses: [127.0.0.1]}]
---
`, namespace, name, i, b.port)
	}
	return text
}

func local(port int, path string) string { return "http://127.0.0.1:" + strconv.Itoa(port) + path }
