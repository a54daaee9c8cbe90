package e2e

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/auth"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// cluster is as much of an API server as identities need: signing keys, and one Secret.
type cluster struct {
	*httptest.Server
	key crypto.Signer

	mu     sync.Mutex
	secret *corev1.Secret
}

func newCluster(t *testing.T) *cluster {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{key: key}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			json.NewEncoder(w).Encode(map[string]string{"issuer": "https://cluster"})
		case "/openid/v1/jwks":
			json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.secret == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return c.secret.DeepCopy(), nil
}

func (c *cluster) Create(_ context.Context, s *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secret = s.DeepCopy()
	return s, nil
}

func (c *cluster) Update(context.Context, *corev1.Secret, metav1.UpdateOptions) (*corev1.Secret, error) {
	return nil, errors.New("nothing is to be updated")
}

// token is one that the cluster projects into a pod of the ServiceAccount in namespace default.
func (c *cluster) token(t *testing.T, serviceAccount string) string {
	t.Helper()
	return c.tokenIn(t, "default", serviceAccount)
}

func (c *cluster) tokenIn(t *testing.T, namespace, serviceAccount string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: c.key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := fmt.Sprintf(`{"iss": "https://cluster", "aud": [%q], "exp": %d, "kubernetes.io": {"namespace": %[4]q,
		"serviceaccount": {"name": %[3]q, "uid": "1"}, "pod": {"name": "%[3]s-x", "uid": "2"}}}`,
		auth.Audience, time.Now().Add(time.Hour).Unix(), serviceAccount, namespace)
	signed, err := signer.Sign([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// control is the controller as far as proxies see it: the delivery, on a port that stays.
type control struct {
	t         *testing.T
	port      int
	authority *auth.Authority
	verifier  *auth.Verifier
	remote    *deliver.Remote
	loop      *reconcile.Cluster
	server    *grpc.Server
}

func newControl(t *testing.T, change ...func(*reconcile.ClusterOptions)) (*control, *cluster) {
	t.Helper()
	k := newCluster(t)
	c := &control{t: t, port: freePort(t)}
	var err error
	if c.authority, err = auth.NewAuthority(t.Context(), auth.AuthorityOptions{Secrets: k, Namespace: "moongate-system"}); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})
	c.verifier, err = auth.NewVerifier(auth.VerifierOptions{Config: &rest.Config{Host: k.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}})
	if err != nil {
		t.Fatal(err)
	}
	go c.verifier.Run(t.Context())
	testkit.Eventually(t, "the signing keys are known", func() bool { return c.verifier.Ready() == nil })
	c.remote = deliver.NewRemote(deliver.RemoteOptions{Authenticate: c.authenticate})
	o := reconcile.ClusterOptions{
		Delivery:   c.remote,
		Translator: translate.New(translate.Options{ControllerName: "moongate.dev/gateway-controller", Cluster: true, Loopback: true}),
		Publish:    func([]translate.StatusChange) {},
		Provision:  func([]translate.ProxySpecChange) {},
		Fetch:      func(context.Context, []translate.SecretRequest) []metav1.Object { return nil },
	}
	for _, f := range change {
		f(&o)
	}
	c.loop = reconcile.NewCluster(o)
	t.Cleanup(func() { c.stop(); c.loop.Close() })
	return c, k
}

// authenticate knows a Gateway by its ServiceAccount, named after it.
func (c *control) authenticate(ctx context.Context) (deliver.Caller, error) {
	id, err := c.verifier.Authenticate(ctx)
	return deliver.Caller{Gateway: id.Namespace + "/" + strings.TrimSuffix(id.ServiceAccount, "-moongate"), Pod: id.Pod}, err
}

// lead serves as a leader.
func (c *control) lead(epoch string) {
	c.t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		c.t.Fatal(err)
	}
	options := append(deliver.ServerOptions(), grpc.Creds(credentials.NewTLS(c.authority.ServerConfig("127.0.0.1"))))
	c.server = grpc.NewServer(options...)
	c.remote.Serve(c.server)
	c.loop.Lead(epoch)
	go c.server.Serve(ln)
}

// stop ends the controller as a crash does.
func (c *control) stop() {
	if c.server != nil {
		c.server.Stop()
		c.server = nil
	}
	c.loop.Standby()
}

// set upserts objects.
func (c *control) set(manifests string) {
	c.t.Helper()
	var objects []metav1.Object
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil || kind.Kind == "" {
			continue // the emptiness after the last
		}
		object, known := map[string]metav1.Object{"GatewayClass": &gwv1.GatewayClass{}, "Gateway": &gwv1.Gateway{}, "HTTPRoute": &gwv1.HTTPRoute{},
			"Service": &corev1.Service{}, "EndpointSlice": &discoveryv1.EndpointSlice{}}[kind.Kind]
		if !known {
			c.t.Fatalf("no type for %s", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			c.t.Fatal(err)
		}
		if object.GetNamespace() == "" && kind.Kind != "GatewayClass" {
			object.SetNamespace("default")
		}
		objects = append(objects, object)
	}
	c.loop.Update(func(t *translate.Translator) {
		for _, o := range objects {
			t.Upsert(o)
		}
	})
}

// pod is what a pod of a Gateway has: files, ports, and a folder that outlives its container.
type pod struct {
	dir                 string
	health, admin, port int
	args                []string
}

func newPod(t *testing.T, c *control, token string) *pod {
	t.Helper()
	p := &pod{dir: t.TempDir(), health: freePort(t), admin: freePort(t), port: freePort(t)}
	for name, text := range map[string][]byte{"ca.crt": c.authority.CAPEM(), "token": []byte(token)} {
		if err := os.WriteFile(filepath.Join(p.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.args = []string{"proxy", "--controller", fmt.Sprintf("127.0.0.1:%d", c.port), "--gateway", "default/gw",
		"--ca-file", filepath.Join(p.dir, "ca.crt"), "--token-file", filepath.Join(p.dir, "token"), "--state-dir", filepath.Join(p.dir, "state"),
		"--health-address", fmt.Sprintf("127.0.0.1:%d", p.health), "--admin-address", fmt.Sprintf("127.0.0.1:%d", p.admin),
		"--access-log", "off", "--shutdown-delay", "2s", "--drain-timeout", "20s"}
	if err := os.Mkdir(filepath.Join(p.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pod) status(t *testing.T, port int, path string) int {
	return ask{url: local(port, path)}.do(t).StatusCode
}

// servedBy waits until the backend answers.
func (p *pod) servedBy(t *testing.T, backend string) {
	t.Helper()
	testkit.Eventually(t, backend+" answers", func() bool {
		got, err := ask{url: local(p.port, "/")}.try()
		return err == nil && got.echo.Backend == backend
	})
}

func to(backend string) string {
	return route("r", "  rules: [{backendRefs: [{name: "+backend+", port: 80}]}]")
}

// TestProxy follows a proxy through the ends of its controller, its container and its pod.
func TestProxy(t *testing.T) {
	t.Parallel()
	slow := newSlowPath()
	blue := newBackend(t, "blue", slow.wait)
	green := newBackend(t, "green", nil)
	c, k := newControl(t)
	p := newPod(t, c, k.token(t, "gw-moongate"))
	c.set(gatewayWith(httpListener("http", p.port, "")) + service("default", "blue", blue) + service("default", "green", green) + to("blue"))
	c.lead("first")

	process := startProcess(t, p.args...)
	p.servedBy(t, "blue")
	for path, want := range map[string][2]int{ // on the pod's address, on loopback
		"/healthz": {200, 200}, "/readyz": {200, 200}, "/metrics": {200, 200}, "/config": {404, 200}, "/backends": {404, 200}, "/debug/pprof/": {404, 200},
		"/status": {404, 404}, "/": {404, 404},
	} {
		if got := [2]int{p.status(t, p.health, path), p.status(t, p.admin, path)}; got != want {
			t.Errorf("%s answers %v, want %v", path, got, want)
		}
	}
	if text := (ask{url: local(p.admin, "/config")}).do(t).body; !strings.Contains(text, "default/gw/http") {
		t.Errorf("/config has no listener:\n%s", text)
	}
	c.set(to("green"))
	p.servedBy(t, "green")

	// Neither the controller's end nor the container's one after it ends the service.
	c.stop()
	p.servedBy(t, "green")
	testkit.Eventually(t, "the state is kept", func() bool {
		kept, err := os.ReadDir(filepath.Join(p.dir, "state"))
		return err == nil && len(kept) > 0
	})
	process.signal(syscall.SIGTERM) // writes what is not written yet
	process.waitExit(patience, 0)
	process = startProcess(t, p.args...)
	p.servedBy(t, "green")
	if got := p.status(t, p.health, "/readyz"); got != 200 {
		t.Errorf("/readyz answers %d with a configuration of the last run", got)
	}

	// Another controller takes over.
	c.set(to("blue"))
	c.lead("second")
	p.servedBy(t, "blue")

	// The pod's end: what is in flight ends well, what comes during the delay is served, and by what is new.
	response := slow.send(t, p.port)
	process.signal(syscall.SIGTERM)
	testkit.Eventually(t, "not ready", func() bool { return p.status(t, p.health, "/readyz") == 503 })
	c.set(to("green"))
	p.servedBy(t, "green")
	testkit.Eventually(t, "no new connections", func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(slow.release)
	if resp, err := http.ReadResponse(response, nil); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("the request in flight: %+v %v, want 200 with Connection: close", resp, err)
	}
	process.waitExit(patience, 0)
}

// TestProxyIdentity has proxies that may not have the Gateway's configuration: they get none, and never are ready.
func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	c, k := newControl(t)
	other := newCluster(t)
	port := freePort(t)
	c.set(gatewayWith(httpListener("http", port, "")))
	c.lead("first")
	for name, token := range map[string]string{
		"another Gateway's": k.token(t, "other-moongate"), "another cluster's": other.token(t, "gw-moongate"), "none": "", "nonsense": "x.y.z",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, c, token)
			process := &process{Cmd: command(p.args...), t: t, stdout: &testkit.Log{}, stderr: &testkit.Log{}, exit: make(chan error, 1)}
			process.Stderr = process.stderr
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { process.exit <- process.Wait() }()
			testkit.Eventually(t, "the refusal is logged", func() bool {
				return strings.Contains(process.stderr.String(), "Unauthenticated") || strings.Contains(process.stderr.String(), "PermissionDenied")
			})
			if got := p.status(t, p.health, "/readyz"); got != 503 {
				t.Errorf("/readyz answers %d", got)
			}
			if got := (ask{url: local(p.admin, "/config")}).do(t); strings.Contains(got.body, "default/gw") {
				t.Errorf("it has configuration:\n%s", got.body)
			}
			if token != "" && strings.Contains(process.stderr.String(), token) {
				t.Error("the token is in the log")
			}
			process.signal(syscall.SIGTERM)
			process.signal(syscall.SIGTERM)
			<-process.exit
		})
	}
}

// TestProxyFlags checks that each wrong flag is told with its remedy, before anything is opened.
func TestProxyFlags(t *testing.T) {
	t.Parallel()
	good := map[string]string{"--controller": "c.svc:9443", "--gateway": "a/b", "--log-level": "info", "--access-log": "off"}
	for _, wrong := range []struct{ flag, value, want string }{
		{"--controller", "", "host and port"},
		{"--controller", "c.svc", "host and port"},
		{"--gateway", "", "namespace and name"},
		{"--gateway", "b", "namespace and name"},
		{"--gateway", "a/b/c", "namespace and name"},
		{"--log-level", "loud", "debug, info, warn or error"},
		{"--access-log", t.TempDir(), "--access-log takes"},
	} {
		args := []string{"proxy"}
		for flag, value := range good {
			if flag == wrong.flag {
				value = wrong.value
			}
			args = append(args, flag, value)
		}
		if _, stderr, code := moongate(args...); code != 2 || !strings.Contains(stderr, wrong.want) {
			t.Errorf("%s %q: exit code %d, %s; want 2 and %q", wrong.flag, wrong.value, code, stderr, wrong.want)
		}
	}
}

// TestProxyZone: a proxy is in the zone that its controller says, unless --zone says another.
func TestProxyZone(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]string{"delivered": "", "flag": "east"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blue, green := newBackend(t, "blue", nil), newBackend(t, "green", nil)
			c, k := newControl(t)
			p := newPod(t, c, k.token(t, "gw-moongate"))
			c.remote.SetZones("default", "gw", map[string]string{"gw-moongate-x": "west"})
			c.set(gatewayWith(httpListener("http", p.port, "")) + service("default", "blue", blue) + service("default", "green", green) + to("blue"))
			c.lead("first")
			args := p.args
			if flag != "" {
				args = append(args, "--zone", flag)
			}
			startProcess(t, args...)
			p.servedBy(t, "blue")
			zone := func() string {
				var all []admin.Backend
				if err := json.Unmarshal([]byte(ask{url: local(p.admin, "/backends")}.do(t).body), &all); err != nil || len(all) == 0 {
					t.Fatalf("/backends has %v: %v", all, err)
				}
				return all[0].ProxyZone
			}
			if got, want := zone(), cmp.Or(flag, "west"); got != want {
				t.Errorf("the proxy is in zone %q, want %q", got, want)
			}
			c.remote.SetZones("default", "gw", map[string]string{"gw-moongate-x": "north"})
			c.set(to("green"))
			p.servedBy(t, "green") // by a generation that says the zone, too
			if got, want := zone(), cmp.Or(flag, "north"); got != want {
				t.Errorf("after it is said to be in another zone the proxy is in %q, want %q", got, want)
			}
		})
	}
}
