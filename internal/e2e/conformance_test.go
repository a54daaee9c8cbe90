package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/source/manifest"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// conformanceCase is what stands in testdata/conformance beside the manifests: what
// they must come to. See testdata/conformance/README.md.
type conformanceCase struct {
	// Features are the names in a GatewayClass's supportedFeatures that the case proves.
	Features []string
	// Certificates are Secrets to make: "namespace/name" -> hosts.
	Certificates map[string][]string
	// Status is what must be found of an object: "Kind namespace/name".
	Status   map[string]wantStatus
	Requests []wantAnswer
}

type wantStatus struct {
	Conditions []string // "Type=Status/Reason"; others may be there
	Addresses  []string
	Listeners  map[string]struct { // all of them
		Attached   int
		Kinds      []string // all of them
		Conditions []string
	}
	Parents []wantParent // all of them, in the order of the spec
}

type wantParent struct {
	SectionName string
	Conditions  []string
}

// wantAnswer is a request and what must come back.
type wantAnswer struct {
	Method, Port, Host, Path string
	Address                  string // 127.0.0.1 where it is ""
	ServerName               string // not "": over TLS
	Header                   map[string]string

	From     string // the Service that must have answered
	Status   int    // 200 where it is 0
	Location string
	Echo     struct { // what the backend must have seen
		Path, Host string
		Header     map[string]string // "" is absent
	}
	AnswerHeader map[string]string // "" is absent
	// At least so many of 100 requests must be answered from each; the rest of this is ignored then.
	Shares map[string]int
}

// TestConformance checks in what situations of the Gateway API's conformance tests
// statuses and answers are what those tests ask for.
func TestConformance(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/conformance/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			manifests, c, ports := readCase(t, path)
			g := start(t, map[string]string{"all.yaml": manifests})
			c.check(t, ports, func() []byte { return g.adminGet("/status") })
		})
	}
}

// check compares the statuses, which shown returns as /status does, and then the answers.
func (c *conformanceCase) check(t *testing.T, ports map[string]string, shown func() []byte) {
	t.Helper()
	// One wait for all, so that a defect does not cost the wait for each.
	wrong := ""
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if wrong = allDiffer(t, shown(), c.Status); wrong == "" || time.Now().After(end) {
			break
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
	for i := range c.Requests {
		c.Requests[i].check(t, ports)
	}
}

// inClusterElsewhere are the cases of which a cluster makes something else.
var inClusterElsewhere = []string{
	"addresses",   // there they are those of Services: golden cases of translate, and GatewayStaticAddresses of the official suite
	"routability", // likewise: golden cases of translate and provision
}

// TestConformanceInCluster checks that the cases come to the same statuses and answers where a controller has the Gateways served by other processes: from the
// control loop by the stream of deliveries to a `moongate proxy` for each Gateway. Statuses are published once these have answered.
func TestConformanceInCluster(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/conformance/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if slices.Contains(inClusterElsewhere, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifests, c, ports := readCase(t, path)
			shown := serveInCluster(t, manifests)
			c.check(t, ports, func() []byte {
				text, err := json.Marshal(shown)
				if err != nil {
					t.Fatal(err)
				}
				return text
			})
		})
	}
}

// serveInCluster has the manifests served by a controller and proxies, and returns where the statuses are.
func serveInCluster(t *testing.T, manifests string) *status.Store {
	t.Helper()
	const controllerName = "moongate.dev/gateway-controller"
	var objects []metav1.Object
	shown, secrets := status.NewStore(controllerName), map[kind.ObjectKey]metav1.Object{}
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		document := manifest.Decode([]byte(text))
		for _, entry := range document.Entries {
			if entry.Object == nil {
				t.Fatalf("%v: %v", entry.ID, entry.Problems)
			}
			if entry.ID.Kind == "Secret" { // which a controller reads when it is needed
				secrets[entry.ID] = entry.Object
				continue
			}
			shown.Upsert(entry.Object)
			objects = append(objects, entry.Object)
		}
	}
	var published sync.Map // keys of objects
	c, k := newControl(t, func(o *reconcile.ClusterOptions) {
		o.Publish = func(changes []translate.StatusChange) {
			for _, change := range changes {
				shown.Apply(change.Object, change.Status, time.Now())
				published.Store(change.Object, true)
			}
		}
		o.Fetch = func(_ context.Context, requests []translate.SecretRequest) (found []metav1.Object) {
			for _, r := range requests {
				if s := secrets[r.Object]; s != nil && r.Needed {
					found = append(found, s)
				}
			}
			return found
		}
	})
	// Each Gateway has a pod that is said to be ready before it has answered, so that statuses wait for its proxy.
	var gateways []*gwv1.Gateway
	for _, o := range objects {
		if gw, is := o.(*gwv1.Gateway); is && gw.Spec.GatewayClassName == "moongate" {
			gateways = append(gateways, gw)
			address := gwv1.IPAddressType
			c.loop.SetInfrastructure(gw.Namespace, gw.Name, &translate.Infrastructure{Ready: true,
				Addresses: []gwv1.GatewayStatusAddress{{Type: &address, Value: "127.0.0.1"}}}, []string{gw.Name + "-moongate-x"})
		}
	}
	c.loop.Update(func(tr *translate.Translator) {
		for _, o := range objects {
			tr.Upsert(o)
		}
	})
	c.lead("first")
	for _, gw := range gateways {
		c.run(k, gw.Namespace, gw.Name)
	}
	for _, gw := range gateways {
		testkit.Eventually(t, "the status of "+gw.Name+" is published", func() bool { _, is := published.Load(kind.KeyOf(gw)); return is })
	}
	return shown
}

// run starts the proxy of a Gateway.
func (c *control) run(k *cluster, namespace, name string) {
	c.t.Helper()
	p := newPod(c.t, c, k.tokenIn(c.t, namespace, name+"-moongate"))
	p.args[slices.Index(p.args, "--gateway")+1] = namespace + "/" + name
	process := command(p.args...)
	log := &testkit.Log{}
	process.Stderr = log
	if err := process.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		process.Process.Kill() // fails where it has ended
		process.Wait()
		if c.t.Failed() {
			c.t.Logf("log of the proxy of %s/%s:\n%s", namespace, name, log)
		}
	})
}

// TestSupportedFeatures: what a GatewayClass says to support has a case, and what has a case is said.
func TestSupportedFeatures(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/conformance/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var proved []string
	for _, path := range paths {
		_, c := splitCase(t, path)
		proved = append(proved, c.Features...)
	}
	proved = append(proved, featuresElsewhere...)
	slices.Sort(proved)
	g := start(t, map[string]string{"class.yaml": class})
	var all struct {
		Items []struct {
			Kind   string
			Status struct{ SupportedFeatures []struct{ Name string } }
		}
	}
	if err := json.Unmarshal(g.adminGet("/status"), &all); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, o := range all.Items {
		for _, f := range o.Status.SupportedFeatures {
			said = append(said, f.Name)
		}
	}
	if proved = slices.Compact(proved); !slices.Equal(said, proved) {
		t.Errorf("the GatewayClass says\n%v\ncases are there for\n%v", said, proved)
	}
}

// featuresElsewhere have tests of their own.
var featuresElsewhere = []string{
	"HTTPRouteRequestMirror", "HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", // TestMirror, TestMirrors
	"HTTPRouteBackendTimeout", "HTTPRouteRequestTimeout", // TestFailures
	"GatewayHTTPSListenerDetectMisdirectedRequests",        // TestHTTPS
	"HTTPRouteRetryCodes", "HTTPRouteRetryConnectionError", // TestRetry
	"BackendTLSPolicy",                                                 // TestBackendTLSPolicy
	"BackendTLSPolicySANValidation", "GatewayBackendClientCertificate", // TestBackendTLSTask
	"GatewayFrontendClientCertificateValidation",                             // TestTaskClientCertificates
	"GatewayFrontendClientCertificateValidationInsecureFallback",             // TestTaskClientCertificates
	"HTTPRouteBackendProtocolH2C",                                            // TestH2CBackend
	"HTTPRouteBackendProtocolWebSocket",                                      // TestWebSocket
	"GRPCRoute", "GRPCRouteNamedRouteRule", "GRPCRouteRequestHeaderModifier", // TestGRPC
	"GatewayPort8080",                                        // a port as any other
	"ListenerSet",                                            // TestListenerSetTask
	"GatewayListenerFilters",                                 // TestListenerFilters, TestListenerExternalAuth
	"TCPRoute",                                               // TestTCPRoute, TestTCPRouteEdits
	"TLSRoute", "TLSRouteModeMixed", "TLSRouteModeTerminate", // TestTLSRoute, TestTLSRouteEdits
	"UDPRoute",           // TestUDPRoute
	"ClusterTrustBundle", // TestBackendTLSTask, TestTaskClientCertificates
}

func splitCase(t testing.TB, path string) (manifests string, c conformanceCase) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifests, expected, found := strings.Cut(string(data), "\n---\nexpect:\n")
	if !found {
		t.Fatalf("%s: no section expect", path)
	}
	if err := yaml.UnmarshalStrict([]byte(expected), &c); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return manifests + "\n---\n", c
}

var portWord = regexp.MustCompile(`\bPORT_[A-Z]\b`)

// readCase fills in what only a run knows: free ports, certificates and backends. Every Service
// has one, which has the Service's name.
func readCase(t testing.TB, path string) (string, conformanceCase, map[string]string) {
	t.Helper()
	manifests, c := splitCase(t, path)
	for key, hosts := range c.Certificates {
		namespace, name, _ := strings.Cut(key, "/")
		manifests += secret(t, namespace, name, hosts...)
	}
	for _, doc := range strings.Split(manifests, "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
			Spec     struct{ Type string }
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, doc)
		}
		if o.Kind == "Service" && o.Spec.Type != "ExternalName" {
			if o.Metadata.Namespace == "" {
				o.Metadata.Namespace = "default"
			}
			_, slice, _ := strings.Cut(service(o.Metadata.Namespace, o.Metadata.Name, newBackend(t, o.Metadata.Name, nil)), "---\n")
			manifests += slice
		}
	}
	ports := map[string]string{}
	fill := func(text string) string {
		return portWord.ReplaceAllStringFunc(text, func(word string) string {
			if ports[word] == "" {
				ports[word] = fmt.Sprint(freePort(t))
			}
			return ports[word]
		})
	}
	return fill(class + manifests), c, ports
}

// allDiffer says which objects differ, one on a line.
func allDiffer(t *testing.T, shown []byte, wanted map[string]wantStatus) (wrong string) {
	t.Helper()
	var all struct{ Items []*object }
	if err := json.Unmarshal(shown, &all); err != nil {
		t.Fatal(err)
	}
	for _, object := range slices.Sorted(maps.Keys(wanted)) {
		want := wanted[object]
		if w := differs(all.Items, object, &want); w != "" {
			wrong += "\n" + object + ": " + w
		}
	}
	return wrong
}

// differs says in what the object's status is not what it must be, or "".
func differs(all []*object, object string, want *wantStatus) string {
	kindName, key, _ := strings.Cut(object, " ")
	o := find(all, kindName, key)
	if o == nil {
		return "it is not there"
	}
	wrong := lacks("", o.Status.Conditions, want.Conditions)
	if want.Addresses != nil {
		var got []string
		for _, a := range o.Status.Addresses {
			got = append(got, strings.TrimSpace(a.Value+" "+a.Routability))
		}
		if !slices.Equal(got, want.Addresses) {
			wrong += fmt.Sprintf("addresses %q, want %q; ", got, want.Addresses)
		}
	}
	if want.Listeners != nil && len(o.Status.Listeners) != len(want.Listeners) {
		wrong += fmt.Sprintf("%d listeners; ", len(o.Status.Listeners))
	}
	for _, l := range o.Status.Listeners {
		w, wanted := want.Listeners[l.Name]
		if !wanted {
			if want.Listeners != nil {
				wrong += "listener " + l.Name + " is unexpected; "
			}
			continue
		}
		var kinds []string
		for _, k := range l.SupportedKinds {
			kinds = append(kinds, k.Kind)
		}
		if l.AttachedRoutes != w.Attached || !slices.Equal(kinds, w.Kinds) {
			wrong += fmt.Sprintf("listener %s: %d attached routes, kinds %q; ", l.Name, l.AttachedRoutes, kinds)
		}
		wrong += lacks("listener "+l.Name+": ", l.Conditions, w.Conditions)
	}
	if want.Parents != nil && len(o.Status.Parents) != len(want.Parents) {
		return wrong + fmt.Sprintf("%d parents", len(o.Status.Parents))
	}
	for i, w := range want.Parents {
		p := o.Status.Parents[i]
		if p.ParentRef.SectionName != w.SectionName {
			wrong += fmt.Sprintf("parent %d: sectionName %q; ", i, p.ParentRef.SectionName)
		}
		wrong += lacks(fmt.Sprintf("parent %d: ", i), p.Conditions, w.Conditions)
	}
	return wrong
}

// find is the object among those of /status, or nil.
func find(all []*object, kindName, key string) *object {
	for _, o := range all {
		name := o.Metadata.Name
		if o.Metadata.Namespace != "" {
			name = o.Metadata.Namespace + "/" + name
		}
		if o.Kind == kindName && name == key {
			return o
		}
	}
	return nil
}

// lacks says which of the wanted conditions are not there; "Type" alone must be absent with a "!" before.
func lacks(where string, got []condition, want []string) string {
	var have, missing []string
	for _, c := range got {
		have = append(have, c.Type+"="+c.Status+"/"+c.Reason)
	}
	for _, w := range want {
		absent, negated := strings.CutPrefix(w, "!")
		unwanted := func(h string) bool { return strings.HasPrefix(h, absent+"=") }
		if negated && slices.ContainsFunc(have, unwanted) || !negated && !slices.Contains(have, w) {
			missing = append(missing, w)
		}
	}
	if missing == nil {
		return ""
	}
	return fmt.Sprintf("%swant %q, have %q; ", where, missing, have)
}

func (w *wantAnswer) check(t *testing.T, ports map[string]string) {
	t.Helper()
	name := fmt.Sprintf("%s %s http(s)://%s%s by port %s %v", w.Method, w.ServerName, w.Host, w.Path, w.Port, w.Header)
	if w.Shares != nil {
		w.checkShares(t, name, ports)
		return
	}
	got := w.send(t, ports)
	want := w.Status
	if want == 0 {
		want = 200
	}
	if got.StatusCode != want || got.echo.Backend != w.From {
		t.Errorf("%s: %d from %q, want %d from %q: %s", name, got.StatusCode, got.echo.Backend, want, w.From, got.body)
		return
	}
	location := portWord.ReplaceAllStringFunc(w.Location, func(word string) string { return ports[word] })
	if l := got.Header.Get("Location"); l != location {
		t.Errorf("%s: Location %q, want %q", name, l, location)
	}
	if w.Echo.Path != "" && w.Echo.Path != got.echo.Path {
		t.Errorf("%s: the backend saw path %q, want %q", name, got.echo.Path, w.Echo.Path)
	}
	if w.Echo.Host != "" && w.Echo.Host != got.echo.Host {
		t.Errorf("%s: the backend saw Host %q, want %q", name, got.echo.Host, w.Echo.Host)
	}
	for field, want := range w.Echo.Header {
		if value := strings.Join(got.echo.Header.Values(field), ","); value != want {
			t.Errorf("%s: the backend saw %s %q, want %q", name, field, value, want)
		}
	}
	for field, want := range w.AnswerHeader {
		if value := strings.Join(got.Header.Values(field), ","); value != want {
			t.Errorf("%s: answered with %s %q, want %q", name, field, value, want)
		}
	}
}

func (w *wantAnswer) checkShares(t *testing.T, name string, ports map[string]string) {
	t.Helper()
	seen := map[string]int{}
	for range 100 {
		got := w.send(t, ports)
		from := got.echo.Backend
		if from == "" {
			from = fmt.Sprint(got.StatusCode)
		}
		seen[from]++
		for field, want := range w.Echo.Header {
			if value := strings.Join(got.echo.Header.Values(field), ","); value != strings.ReplaceAll(want, "$backend", from) {
				t.Fatalf("%s: %s saw %s %q", name, from, field, value)
			}
		}
	}
	for from, least := range w.Shares {
		if seen[from] < least || len(seen) != len(w.Shares) {
			t.Errorf("%s: answered by %v, want at least %v", name, seen, w.Shares)
			return
		}
	}
}

func (w *wantAnswer) send(t *testing.T, ports map[string]string) *answer {
	t.Helper()
	port, address := ports[w.Port], w.Address
	if address == "" {
		address = "127.0.0.1"
	}
	if port == "" {
		t.Fatalf("port %q is in no manifest", w.Port)
	}
	a := ask{method: w.Method, url: "http://" + address + ":" + port + w.Path, host: w.Host, header: w.Header}
	if w.ServerName != "" {
		a.url, a.client = "https://"+address+":"+port+w.Path, tlsClient(w.ServerName, "HTTP/2.0")
	}
	return a.do(t)
}
