package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/migrate"
	"github.com/moongate-dev/moongate/internal/migrate/migratetest"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestMigrateLikeNginx sends the requests of each case to nginx, configured as ingress-nginx would, and to Moongate with what migrate makes of the Ingresses. Answers must be alike, unless
// the case says which entry of the report tells of the difference: then the entry must be there, and the answers must differ.
func TestMigrateLikeNginx(t *testing.T) {
	t.Parallel()
	cases := migratetest.Load(t, "../migrate/testdata")
	if len(cases) < 60 {
		t.Errorf("there are %d cases, want 60 at least", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Theme+"/"+c.Name, func(t *testing.T) {
			t.Parallel()
			compareWithNginx(t, c)
		})
	}
}

// anyEntry says of a request that it may be answered differently if the report has an entry, of paths or TLS of an Ingress of its host, with another outcome than translated.
const anyEntry = "*"

func compareWithNginx(t *testing.T, c migratetest.Case) {
	nginx := &ingressNginx{upstreams: map[string]int{}, ports: map[string]int{}, http: freePort(t), https: freePort(t), notFound: freePort(t)}
	services := map[string]map[string]int32{} // port numbers by name, by namespace/name
	hosts := []string{"*.test", "*.example.test"}
	secrets := map[string][]string{} // the hosts of each
	need := func(namespace, name string) map[string]int32 {
		key := namespace + "/" + name
		if services[key] == nil {
			services[key] = map[string]int32{}
		}
		return services[key]
	}
	for doc := range strings.SplitSeq(string(c.Objects), "---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		switch head.Kind {
		case "Ingress":
			ing := new(networkingv1.Ingress)
			if err := yaml.UnmarshalStrict([]byte(doc), ing); err != nil {
				t.Fatal(err)
			}
			if ing.Namespace == "" {
				ing.Namespace = "default"
			}
			nginx.ingresses = append(nginx.ingresses, ing)
			for _, s := range ing.Spec.TLS {
				hosts = append(hosts, s.Hosts...)
				if s.SecretName == "" {
					continue
				}
				secret := ing.Namespace + "/" + s.SecretName
				secrets[secret] = append(secrets[secret], s.Hosts...)
			}
			backend := func(b *networkingv1.IngressBackend) {
				if b == nil || b.Service == nil {
					return
				}
				ports := need(ing.Namespace, b.Service.Name)
				if n := b.Service.Port.Number; n != 0 {
					ports[fmt.Sprintf("p%d", n)] = n
				}
			}
			backend(ing.Spec.DefaultBackend)
			for _, r := range ing.Spec.Rules {
				if r.HTTP != nil {
					for _, p := range r.HTTP.Paths {
						backend(&p.Backend)
					}
				}
			}
		case "ConfigMap":
			m := new(corev1.ConfigMap)
			if err := yaml.UnmarshalStrict([]byte(doc), m); err != nil {
				t.Fatal(err)
			}
			if m.Name == "ingress-nginx-controller" {
				nginx.config = m.Data
			}
		case "IngressClass":
			class := new(networkingv1.IngressClass)
			if err := yaml.UnmarshalStrict([]byte(doc), class); err != nil {
				t.Fatal(err)
			}
			if nginx.classes == nil {
				nginx.classes = map[string]*networkingv1.IngressClass{}
			}
			nginx.classes[class.Name] = class
		case "Deployment", "DaemonSet":
			workload := new(appsv1.Deployment)
			if err := yaml.Unmarshal([]byte(doc), workload); err != nil {
				t.Fatal(err)
			}
			nginx.arguments = argumentsOf(workload)
			if secret := nginx.arguments["default-ssl-certificate"]; secret != "" {
				secrets[secret] = append(secrets[secret], "*.test")
			}
		case "Service":
			s := new(corev1.Service)
			if err := yaml.UnmarshalStrict([]byte(doc), s); err != nil {
				t.Fatal(err)
			}
			if s.Namespace == "" {
				s.Namespace = "default"
			}
			for _, p := range s.Spec.Ports {
				need(s.Namespace, s.Name)[p.Name] = p.Port
			}
		}
	}
	manifests := serveServices(t, services, nginx.upstreams)
	certificate, key := testkit.Certificate{Hosts: hosts}.PEM(t)
	dir := t.TempDir()
	nginx.certificate, nginx.key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, text := range map[string][]byte{nginx.certificate: certificate, nginx.key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for secret, hosts := range secrets {
		namespace, name, _ := strings.Cut(secret, "/")
		certificate, key := testkit.Certificate{Hosts: hosts}.PEM(t)
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n", name, namespace,
			base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
	}
	nginx.start(t)

	input := new(migrate.Input)
	input.Read("ingresses.yaml", c.Objects)
	if len(input.Problems) > 0 {
		t.Fatal(input.Problems)
	}
	moongate := target{http: freePort(t), https: freePort(t)}
	out := migrate.Convert(input, migrate.Options{Class: "nginx", GatewayClass: "moongate", ControllerName: "moongate.dev/gateway-controller", HTTPPort: moongate.http, HTTPSPort: moongate.https})
	mustPassCheck(t, string(out.YAML())+manifests, out.Report)
	start(t, map[string]string{"migrated.yaml": string(out.YAML()), "services.yaml": manifests})

	failed := false
	for _, r := range c.Requests {
		want, got := target{nginx.http, nginx.https}.answers(t, r), moongate.answers(t, r)
		same := want.like(got)
		switch {
		case r.Differs == anyEntry:
			if want.status == http.StatusUnauthorized && got.backend != "" { // whatever the report says
				t.Errorf("%s: was closed, and is open:\nnginx    %v\nmoongate %v", r.Do, want, got)
				failed = true
			}
			if want.status == 404 && got.status == 404 { // the entry "unknown paths and hosts" holds for all Ingresses
				continue
			}
			if host := hostOf(r.Do); got.header == noAnswer && strings.Contains(r.Do, "https://") && !bytes.Contains(out.YAML(), []byte("name: https-"+host+"\n")) { // as the entry "default certificate" says
				continue
			}
			if !same && !slices.ContainsFunc(out.Report, func(e migrate.Entry) bool {
				return e.Outcome != migrate.Translated && (strings.HasSuffix(e.Field, "/rewrite-target") || strings.HasPrefix(e.Field, "spec.") || strings.HasSuffix(e.Field, "/auth-type")) && nginx.isFor(e.Object, r.Do)
			}) {
				t.Errorf("%s: the report has nothing of it:\nnginx    %v\nmoongate %v", r.Do, want, got)
				failed = true
			}
		case r.Differs == "" && !same:
			t.Errorf("%s %v:\nnginx    %v\nmoongate %v", r.Do, r.Headers, want, got)
			failed = true
		case r.Differs != "" && same:
			t.Errorf("%s %v is answered alike, %v, though it is said to differ because of %s", r.Do, r.Headers, want, r.Differs)
		case r.Differs != "" && !slices.ContainsFunc(out.Report, func(e migrate.Entry) bool {
			return strings.TrimPrefix(e.Field, annotationPrefix) == r.Differs && e.Outcome != migrate.Translated
		}):
			t.Errorf("%s %v is answered differently, and the report has nothing of %s:\nnginx    %v\nmoongate %v\n%s", r.Do, r.Headers, r.Differs, want, got, reportText(out.Report))
		}
	}
	if failed {
		t.Logf("of\n%s\nmigrate has made\n%s\n%s", c.Objects, out.YAML(), reportText(out.Report))
	}
}

// argumentsOf returns the arguments of the first container, which have no spaces.
func argumentsOf(workload *appsv1.Deployment) map[string]string {
	all := map[string]string{}
	list := workload.Spec.Template.Spec.Containers[0].Args
	for i, a := range list {
		name, value, given := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !given && i+1 < len(list) && !strings.HasPrefix(list[i+1], "--") {
			value = list[i+1]
		} else if !given {
			value = "true"
		}
		all[name] = strings.ReplaceAll(value, "$(POD_NAMESPACE)", workload.Namespace)
	}
	return all
}

// isFor reports whether an Ingress, as entries of the report name it, is for the host of a request.
func (c *ingressNginx) isFor(object, do string) bool {
	return slices.ContainsFunc(c.ingresses, func(ing *networkingv1.Ingress) bool {
		return "Ingress "+ing.Namespace+"/"+ing.Name == object && slices.ContainsFunc(ing.Spec.Rules, func(rule networkingv1.IngressRule) bool { return coveredBy(hostOf(do), []string{rule.Host}) })
	})
}

func hostOf(do string) string {
	_, rest, _ := strings.Cut(do, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

func reportText(r migrate.Report) string {
	var b strings.Builder
	r.Write(&b) //nolint:errcheck // never fails
	return b.String()
}

// reported are complaints of check that are fine where the report has an entry with a text.
var reported = []struct{ complaint, entry string }{
	{"share hosts of these listeners", "OverlappingTLSConfig"},
	{"hosts of this listener are also hosts of", "OverlappingTLSConfig"},
	{"no certificate of the listener is for", "in nginx the default one"},
	{"it has neither backendRefs nor a RequestRedirect filter", "answered 500"}, // so that nothing is open
	{"it has neither backendRefs nor a RequestRedirect filter", "cannot be expressed"},
}

// mustPassCheck has `moongate check` read the manifests.
func mustPassCheck(t *testing.T, manifests string, report migrate.Report) {
	t.Helper()
	fine := func(line string) bool {
		for _, r := range reported {
			if strings.Contains(line, r.complaint) && slices.ContainsFunc(report, func(e migrate.Entry) bool { return strings.Contains(e.Message, r.entry) }) {
				return true
			}
		}
		return false
	}
	path := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := cli.Main([]string{"check", "-o", "text", path}, &stdout, &stderr); code == 0 {
		return
	}
	for line := range strings.Lines(stdout.String() + stderr.String()) {
		if strings.HasPrefix(line, path) && !fine(line) {
			t.Errorf("check finds a mistake in what migrate wrote: %s\n%s", line, manifests)
		}
	}
}

// serveServices starts a backend for each Service, and returns manifests of Services and EndpointSlices. The Service auth decides about requests by their Authorization.
func serveServices(t *testing.T, services map[string]map[string]int32, upstreams map[string]int) string {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(services)) {
		namespace, name, _ := strings.Cut(key, "/")
		var also func(http.ResponseWriter, *http.Request) bool
		if name == "auth" {
			also = authorize
		}
		if upstreams[key] = newBackend(t, name, also).port; name == "gone" {
			upstreams[key] = freePort(t) // where nobody listens
		}
		var ports, endpoints []string
		for _, port := range slices.Sorted(maps.Keys(services[key])) {
			ports = append(ports, fmt.Sprintf("{name: %q, port: %d}", port, services[key][port]))
			endpoints = append(endpoints, fmt.Sprintf("{name: %q, port: %d}", port, upstreams[key]))
		}
		addresses := "{addresses: [127.0.0.1]}"
		if name == "empty" {
			addresses = ""
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: %[2]s}\nspec: {ports: [%[3]s]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\nports: [%[4]s]\nendpoints: [%[5]s]\n",
			name, namespace, strings.Join(ports, ", "), strings.Join(endpoints, ", "), addresses)
	}
	return b.String()
}

func authorize(w http.ResponseWriter, r *http.Request) bool {
	status := map[string]int{"Bearer alice": 200, "Bearer created": 201, "Bearer forbidden": 403, "Bearer broken": 500}[r.Header.Get("Authorization")]
	if status == 0 {
		status = 401
	}
	w.Header().Set("X-User", "alice")
	w.Header().Set("X-Other", "other")
	w.WriteHeader(status)
	return true
}

// target is one of the two that are compared: its ports on loopback.
type target struct{ http, https int }

// exchanged is what of an answer must be alike.
type exchanged struct {
	status  int
	backend string
	seen    string // by the backend: method, path, host, length of the body, some fields
	header  string // of the response, some fields
	share   map[string]int
	total   int
}

// like compares answers; shares may differ by 15 of 100, which is more than five standard deviations of 300 requests.
func (a exchanged) like(b exchanged) bool {
	if a.share == nil {
		return a.status == b.status && a.backend == b.backend && a.seen == b.seen && a.header == b.header
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(a.share)), slices.Collect(maps.Keys(b.share))) {
		if d := a.share[name] - b.share[name]; d > a.total*15/100 || d < -a.total*15/100 {
			return false
		}
	}
	return true
}

const noAnswer = "no answer"

var comparedHeaders = []string{"Location", "Strict-Transport-Security", "Www-Authenticate", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age", "X-Snippet"}

var seenHeaders = []string{"X-Forwarded-For", "X_under", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Host", "X-User", "X-Other", "Authorization", "Cookie", "Forwarded", "Proxy"}

// answers sends the request as often as it says.
func (to target) answers(t *testing.T, r migratetest.Request) exchanged {
	t.Helper()
	client := &http.Client{Timeout: patience, CheckRedirect: noRedirects.CheckRedirect, Transport: &http.Transport{
		DisableCompression:    true,
		ExpectContinueTimeout: patience,
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			port := to.http
			if strings.HasSuffix(address, ":443") {
				port = to.https
			}
			return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", port))
		},
	}}
	defer client.CloseIdleConnections()
	method, url, ok := strings.Cut(r.Do, " ")
	if !ok {
		t.Fatalf("%q is not a method and a URL", r.Do)
	}
	header := maps.Clone(r.Headers)
	if r.Size > 0 { // else a client whose body is refused may find its connection closed before it has read the answer
		if header == nil {
			header = map[string]string{}
		}
		header["Expect"] = "100-continue"
	}
	var out exchanged
	if r.Share {
		out.share = map[string]int{}
	}
	for range max(r.Times, 1) {
		a, err := ask{method: method, url: url, client: client, header: header, body: strings.Repeat("x", r.Size)}.try()
		if err != nil {
			return exchanged{header: noAnswer} // such as a handshake that fails
		}
		if r.Share {
			out.share[a.echo.Backend]++
			out.total++
			continue
		}
		out.status, out.backend, out.seen, out.header = a.StatusCode, a.echo.Backend, "", ""
		if out.backend != "" {
			out.seen = fmt.Sprintf("%s %s Host %s, %d bytes", a.echo.Method, a.echo.Path, a.echo.Host, len(a.echo.Body))
			for _, name := range seenHeaders {
				if v := a.echo.Header.Values(name); len(v) > 0 {
					out.seen += fmt.Sprintf(", %s %q", name, v)
				}
			}
		}
		for _, name := range comparedHeaders {
			if v := a.Header.Values(name); len(v) > 0 {
				// Ports of loopback are not those of the listeners' hosts.
				out.header += strings.NewReplacer(fmt.Sprintf(":%d", to.http), "", fmt.Sprintf(":%d", to.https), "").Replace(fmt.Sprintf("%s %q, ", name, strings.ReplaceAll(strings.Join(v, ","), ", ", ",")))
			}
		}
	}
	return out
}

// TestMigrateRandomLikeNginx has Ingresses at random, always the same, whose paths overlap by any type. Where answers differ the report must have an entry about one of the Ingresses.
func TestMigrateRandomLikeNginx(t *testing.T) {
	t.Parallel()
	for seed := range uint64(randomCases) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := randomCase(rand.New(rand.NewPCG(seed, 2)))
			compareWithNginx(t, c)
		})
	}
}

// randomCases is how many there are.
const randomCases = 40

// randomCase makes one to four Ingresses of two hosts, and asks for all paths.
func randomCase(r *rand.Rand) migratetest.Case {
	paths := []string{"/", "/a", "/a/b", "/ab", "/A", "/b.c", "/a/b/c", "/b/"}
	expressions := []string{"/a(/|$)(.*)", "/a/[0-9]+", "/(.*)", "/a/b/?(.*)", "/b.*", "/ab?c"}
	requests := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/bc", "/ab", "/abc", "/A", "/A/x", "/b", "/b/", "/b/x?q=1", "/b.c", "/bxc", "/a/12/x", "/a/b/c/d", "/x"}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var b strings.Builder
	for n := range 1 + r.IntN(4) {
		annotations, regular := "", r.IntN(4) == 0
		if regular {
			annotations = pick("use-regex: \"true\"", "rewrite-target: /$2", "rewrite-target: /fixed", "rewrite-target: /new/$1", "use-regex: \"true\", nginx.ingress.kubernetes.io/rewrite-target: /new/$2",
				"auth-type: basic, nginx.ingress.kubernetes.io/rewrite-target: /$2", "auth-type: basic, nginx.ingress.kubernetes.io/use-regex: \"true\"")
		} else {
			annotations = pick("", "", "", "ssl-redirect: \"false\"", "app-root: /start", "force-ssl-redirect: \"true\"", "upstream-vhost: inner.test", "temporal-redirect: https://other.test$request_uri", "auth-type: basic")
		}
		if annotations != "" {
			annotations = ", nginx.ingress.kubernetes.io/" + annotations
		}
		// Without it redirects to HTTPS differ, and hide other differences.
		annotations = ", annotations: {nginx.ingress.kubernetes.io/preserve-trailing-slash: \"true\"" + annotations + "}"
		host, tls := pick("a.test", "a.test", "a.test", "b.test", "b.test", "*.test"), pick("", "", "tls: [{hosts: [a.test], secretName: a-tls}], ")
		if host == "*.test" && tls != "" {
			tls = `tls: [{hosts: ["*.test"], secretName: wild-tls}], `
		}
		var rules []string
		for range 1 + r.IntN(4) {
			path, kind := pick(paths...), pick("Prefix", "Prefix", "Exact", "ImplementationSpecific")
			if regular && r.IntN(2) == 0 {
				path, kind = pick(expressions...), "ImplementationSpecific"
			}
			rules = append(rules, fmt.Sprintf("{path: %q, pathType: %s, backend: {service: {name: %s, port: {number: 80}}}}", path, kind, pick("one", "two", "three")))
		}
		fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i%d%s}\nspec: {ingressClassName: nginx, %srules: [{host: %q, http: {paths: [%s]}}]}\n", n, annotations, tls, host, strings.Join(rules, ", "))
	}
	c := migratetest.Case{Objects: []byte(b.String())}
	for _, path := range requests {
		for _, host := range []string{"http://a.test", "http://b.test", "https://a.test", "https://b.test"} {
			c.Requests = append(c.Requests, migratetest.Request{Do: "GET " + host + path, Differs: anyEntry})
		}
	}
	return c
}
