package translate_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/schema"
	"github.com/moongate-dev/moongate/internal/translate"
)

var update = flag.Bool("update", false, "write what is computed into the golden files; then read every difference")

const controllerName = "moongate.dev/gateway-controller"

var (
	options        = translate.Options{ControllerName: controllerName, DefaultAddresses: []string{"192.0.2.1"}, Bind: []string{"192.0.2.1"}}
	clusterOptions = translate.Options{ControllerName: controllerName, Cluster: true, ReservedPorts: []int32{15900, 15901}}
)

// optionsOf a golden case are those of a cluster below testdata/cluster, and those of a controller that watches some
// namespaces only below testdata/namespaces.
func optionsOf(path string) translate.Options {
	if strings.HasPrefix(path, "testdata/namespaces/") {
		some := clusterOptions
		some.Namespaces = []string{"default"}
		return some
	}
	if strings.HasPrefix(path, "testdata/cluster/") {
		return clusterOptions
	}
	if strings.HasPrefix(path, "testdata/redis/") {
		some := options
		some.RateLimits = &config.RateLimitService{Address: "192.0.2.9:6379", Gcra: true}
		return some
	}
	return options
}

// TestGolden translates the manifests of each testdata/<topic>/<case>.yaml and
// compares the config and status sections of the same file; see testdata/README.md.
func TestGolden(t *testing.T) {
	for _, path := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(path, "testdata/"), ".yaml"), func(t *testing.T) {
			g := readGolden(t, path)
			w := newWorldWith(optionsOf(path))
			for _, i := range g.inputs {
				w.upsert(i)
			}
			w.commit(t)
			got := "---\n" + w.printConfig(t) + "---\n" + w.printStatus(t)
			if optionsOf(path).Cluster {
				got += "---\n" + w.printProxySpecs(t) + "---\n" + w.printSecretRequests(t)
			}
			if *update {
				if err := os.WriteFile(path, []byte(g.inputText+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != g.expected {
				t.Errorf("%s: what is computed differs from the file (-update writes it):\n%s", path, firstDifference(g.expected, got))
			}
		})
	}
}

func TestGoldenCaseCount(t *testing.T) {
	if n := len(goldenFiles(t)); n < 65 {
		t.Errorf("%d golden cases, want at least 65", n)
	}
}

// TestGoldenOrder checks that the order of the objects' arrival does not show.
func TestGoldenOrder(t *testing.T) {
	for _, path := range goldenFiles(t) {
		g := readGolden(t, path)
		want := scratch(t, optionsOf(path), g.inputs)
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 1))
			inputs := slices.Clone(g.inputs)
			r.Shuffle(len(inputs), func(i, j int) { inputs[i], inputs[j] = inputs[j], inputs[i] })
			if got := scratch(t, optionsOf(path), inputs); got != want {
				t.Errorf("%s: shuffled by seed %d:\n%s", path, seed, firstDifference(want, got))
			}
			w := newWorldWith(optionsOf(path))
			for _, i := range inputs {
				w.upsert(i)
				w.commit(t)
			}
			if got := w.print(t); got != want {
				t.Errorf("%s: one commit for each object, seed %d:\n%s", path, seed, firstDifference(want, got))
			}
		}
	}
}

func goldenFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	return paths
}

// golden is one file: manifests, then what is expected of them.
type golden struct {
	inputText string // with its comments
	inputs    []input
	expected  string
}

// input is an object or a fact of run time.
type input struct {
	object   metav1.Object
	listener string // key of a listener with a fault
	gateway  string // a Gateway with an address that has a fault
	address  string
	message  string
	route    string // key of a route with a fault at gateway
	fault    translate.ListenerFault

	infrastructure *translate.Infrastructure // of gateway
	installed      *translate.Installed
	tickets        *translate.Tickets
}

var expectation = regexp.MustCompile(`(?m)^---\nconfig:`)

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{inputText: string(data)}
	if at := expectation.FindStringIndex(g.inputText); at != nil {
		g.inputText, g.expected = g.inputText[:at[0]], g.inputText[at[0]:]
	}
	classes := false
	for _, doc := range strings.Split(g.inputText, "\n---\n") {
		i := decode(t, path, doc)
		if _, is := i.object.(*gwv1.GatewayClass); is {
			classes = true
		}
		g.inputs = append(g.inputs, i)
	}
	if !classes {
		gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
		gc.Name = "moongate"
		g.inputs = append(g.inputs, input{object: gc})
	}
	return g
}

// kinds are those that translation reads.
var kinds = func() map[string]func() metav1.Object {
	m := map[string]func() metav1.Object{}
	for _, k := range kind.All() {
		if translate.New(translate.Options{}).Upsert(k.New()) {
			m[k.Name] = k.New
		}
	}
	return m
}()

var pemFile = regexp.MustCompile(`\$\{([a-z.-]+)\}`)

func decode(t *testing.T, path, doc string) input {
	t.Helper()
	doc = pemFile.ReplaceAllStringFunc(doc, func(ref string) string {
		data, err := os.ReadFile("testdata/pem/" + ref[2:len(ref)-1])
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return fmt.Sprintf("%q", data)
	})
	var head struct {
		Kind, Listener, Gateway, Address, Message, Route string
	}
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if i, is := decodeFact(t, path, doc, head.Kind); is {
		i.listener, i.gateway, i.address, i.message, i.route = head.Listener, head.Gateway, head.Address, head.Message, head.Route
		return i
	}
	fresh, known := kinds[head.Kind]
	if !known {
		t.Fatalf("%s: kind %q", path, head.Kind)
	}
	o := fresh()
	if head.Kind == kind.BackendTrafficPolicy.Name {
		doc = withDefaults(t, path, doc)
	}
	if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
		t.Fatalf("%s: %s: %v", path, head.Kind, err)
	}
	if o.GetNamespace() == "" && kind.Of(o).Namespaced {
		o.SetNamespace("default")
	}
	if s, is := o.(*corev1.Secret); is { // as the API server does
		for k, v := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[k] = []byte(v)
		}
		s.StringData = nil
	}
	return input{object: o}
}

// withDefaults returns a BackendTrafficPolicy with the defaults of its CRD, which a merge cannot tell from values that somebody has
// set. One that the CRD does not admit comes from a cluster with another CRD, and is returned as it is.
func withDefaults(t *testing.T, path, doc string) string {
	t.Helper()
	var object any
	if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	object = wholeNumbers(object)
	violations, err := schema.Lookup("v1alpha1", kind.BackendTrafficPolicy.Name).Admit(object.(map[string]any))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(violations) > 0 {
		return doc
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(data)
}

// decodeFact reads what is no object but a fact of run time.
func decodeFact(t *testing.T, path, doc, name string) (i input, is bool) {
	t.Helper()
	var err error
	switch name {
	case "Fault":
		err = yaml.Unmarshal([]byte(doc), &i.fault)
	case "Infrastructure":
		var fact struct {
			Kind, Gateway string
			translate.Infrastructure
		}
		err = yaml.UnmarshalStrict([]byte(doc), &fact)
		i.infrastructure = &fact.Infrastructure
	case "Installed":
		var fact struct {
			Kind             string
			CRDs             []translate.InstalledCRD
			Kinds            []translate.Kind
			Unread           []translate.UnreadKind
			UnreadNamespaces []string
		}
		err = yaml.UnmarshalStrict([]byte(doc), &fact)
		i.installed = &translate.Installed{CRDs: fact.CRDs, Kinds: fact.Kinds, Unread: fact.Unread, UnreadNamespaces: fact.UnreadNamespaces}
	case "Undecoded":
		var fact struct {
			Kind, Of string
			kind.Undecoded
		}
		err = yaml.UnmarshalStrict([]byte(doc), &fact)
		fact.Undecoded.Kind = fact.Of
		i.object = &fact.Undecoded
	case "Tickets":
		var fact struct {
			Kind, Secret string
			Period       int64
		}
		err = yaml.UnmarshalStrict([]byte(doc), &fact)
		i.tickets = &translate.Tickets{Secret: []byte(fact.Secret), Period: fact.Period}
	default:
		return i, false
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", path, name, err)
	}
	return i, true
}

// world is a Translator and the sum of what it has said.
type world struct {
	*translate.Translator
	config    map[config.ID]*config.Resource
	statuses  map[kind.ObjectKey]translate.StatusChange
	specs     map[string]*translate.ProxySpec        // by namespace/name
	selectors map[string]*translate.EndpointSelector // likewise
	needed    map[kind.ObjectKey]bool
	absent    map[kind.ObjectKey]bool // Secrets that were said not to be there
}

func newWorld() *world { return newWorldWith(options) }

func newWorldWith(o translate.Options) *world {
	return &world{translate.New(o), map[config.ID]*config.Resource{}, map[kind.ObjectKey]translate.StatusChange{},
		map[string]*translate.ProxySpec{}, map[string]*translate.EndpointSelector{}, map[kind.ObjectKey]bool{}, map[kind.ObjectKey]bool{}}
}

// setListenerFault is SetListenerFault for a Gateway with proxies of its own.
func (w *world) setListenerFault(key string, fault *translate.ListenerFault) {
	gateway, _ := config.SplitListenerKey(key)
	namespace, name, _ := strings.Cut(gateway, "/")
	w.SetListenerFault(key, namespace, name, fault)
}

func (w *world) upsert(i input) {
	switch {
	case i.object != nil:
		w.Upsert(i.object)
	case i.listener != "":
		w.setListenerFault(i.listener, &i.fault)
	case i.route != "":
		namespace, name, _ := strings.Cut(i.gateway, "/")
		w.SetRouteFault(i.route, namespace, name, &translate.RouteFault{Message: i.message})
	case i.installed != nil:
		w.SetInstalled(*i.installed)
	case i.tickets != nil:
		w.SetTickets(*i.tickets)
	default:
		namespace, name, _ := strings.Cut(i.gateway, "/")
		if i.infrastructure != nil {
			w.SetInfrastructure(namespace, name, i.infrastructure)
			return
		}
		w.SetAddressFault(namespace, name, i.address, &translate.AddressFault{Message: i.message})
	}
}

// commit applies the changes and checks what must hold of every generation.
func (w *world) commit(t *testing.T) translate.Result {
	t.Helper()
	r := w.Commit()
	if !slices.IsSortedFunc(r.Config.Upserts, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) }) ||
		!slices.IsSortedFunc(r.Config.Removals, config.CompareID) {
		t.Errorf("update is not sorted: %v", r.Config)
	}
	for _, u := range r.Config.Upserts {
		w.config[u.ID()] = u
	}
	for _, id := range r.Config.Removals {
		if w.config[id] == nil {
			t.Errorf("removal of %v, which is not there", id)
		}
		delete(w.config, id)
	}
	for _, s := range r.Statuses {
		if s.Status == nil {
			delete(w.statuses, s.Object)
		} else {
			w.statuses[s.Object] = s
		}
	}
	for _, s := range r.Selectors {
		if w.selectors[s.Namespace+"/"+s.Name] = s.Selector; s.Selector == nil {
			delete(w.selectors, s.Namespace+"/"+s.Name)
		}
	}
	w.checkReferences(t)
	w.commitProxySpecs(t, r)
	return r
}

// commitProxySpecs applies what is for a cluster and checks that every managed Gateway has a spec.
func (w *world) commitProxySpecs(t *testing.T, r translate.Result) {
	t.Helper()
	for _, p := range r.ProxySpecs {
		key := p.Namespace + "/" + p.Name
		switch {
		case p.Spec == nil && w.specs[key] == nil:
			t.Errorf("end of the spec of %s, which is not there", key)
		case p.Spec == nil:
			delete(w.specs, key)
		case p.Spec.Namespace != p.Namespace || p.Spec.Name != p.Name:
			t.Errorf("spec of %s says %s/%s", key, p.Spec.Namespace, p.Spec.Name)
		default:
			w.specs[key] = p.Spec
		}
	}
	if !slices.IsSortedFunc(r.ProxySpecs, func(a, b translate.ProxySpecChange) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		t.Errorf("specs are not sorted: %v", r.ProxySpecs)
	}
	if !slices.IsSortedFunc(r.SecretRequests, func(a, b translate.SecretRequest) int { return a.Object.Compare(b.Object) }) {
		t.Errorf("requests are not sorted: %v", r.SecretRequests)
	}
	for _, request := range r.SecretRequests {
		if request.Needed == w.needed[request.Object] {
			t.Errorf("%v is told twice", request)
		}
		if request.Needed {
			w.needed[request.Object] = true
		} else {
			delete(w.needed, request.Object)
		}
	}
}

// checkReferences checks that config refers only to what is in it, and that nothing
// is in it without a use.
func (w *world) checkReferences(t *testing.T) {
	t.Helper()
	used := map[config.ID]bool{}
	refer := func(from config.ID, to config.ID) {
		used[to] = true
		if w.config[to] == nil {
			t.Errorf("%v refers to %v, which is not there", from, to)
		}
	}
	connections := map[[2]string]config.ID{} // by listener and hostname
	for id, r := range w.config {
		for _, key := range r.GetListener().ServerCertificates() {
			refer(id, config.ID{Kind: config.KindCertificate, Key: key})
		}
		if key := r.GetListener().GetIdentity().GetCertificate(); key != "" {
			refer(id, config.ID{Kind: config.KindCertificate, Key: key})
		}
		for _, a := range r.Attachments() {
			for _, h := range a.Hostnames {
				if id.Kind != config.KindL4Route {
					break
				}
				at := [2]string{a.Listener, h.Effective}
				if other, taken := connections[at]; taken {
					t.Errorf("%v and %v both have the connections of listener %s for %q", id, other, a.Listener, h.Effective)
				}
				connections[at] = id
			}
			refer(id, config.ID{Kind: config.KindListener, Key: a.Listener})
		}
		if key := r.GetBackend().GetTls().GetCertificate(); key != "" {
			refer(id, config.ID{Kind: config.KindCertificate, Key: key})
		}
		for _, key := range slices.Concat(r.GetBackend().GetTls().GetAuthorities(), r.GetListener().GetClientValidation().GetAuthorities()) {
			refer(id, config.ID{Kind: config.KindAuthorities, Key: key})
		}
		for _, key := range backendsOf(t, r) {
			refer(id, config.ID{Kind: config.KindBackend, Key: key})
			if w.config[config.ID{Kind: config.KindBackend, Key: key}].GetBackend().GetExternalHostname() == nil { // else proxies find them
				refer(id, config.ID{Kind: config.KindEndpoints, Key: key})
			}
		}
	}
	for id := range w.config {
		if !used[id] && id.Kind != config.KindListener && !id.Kind.IsRoute() && id.Kind != config.KindTicketKeys && id.Kind != config.KindRateLimitService {
			t.Errorf("%v is not used", id)
		}
	}
}

func backendsOf(t *testing.T, r *config.Resource) (keys []string) {
	t.Helper()
	rules := r.GetRoute().GetRules()
	if l4 := r.GetL4Route(); l4 != nil {
		rules = []*config.Rule{{BackendRefs: l4.BackendRefs}, {BackendRefs: l4.PassthroughBackendRefs}}
	}
	if l := r.GetListener(); l != nil {
		rules = []*config.Rule{{Filters: l.Filters}}
		if l.Tracing != nil {
			keys = append(keys, l.Tracing.Backend)
		}
	}
	for _, rule := range rules {
		filters := slices.Clone(rule.Filters)
		for _, ref := range rule.BackendRefs {
			if (ref.Backend == "") != (ref.Failure != nil) {
				t.Errorf("%s: failure of a backendRef must be set exactly where backend is not: %v", r.ID(), ref)
			}
			if ref.Backend != "" {
				keys = append(keys, ref.Backend)
			}
			filters = append(filters, ref.Filters...)
		}
		for _, f := range filters {
			m, err := f.UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			if to, is := m.(interface{ GetBackend() string }); is {
				keys = append(keys, to.GetBackend())
			}
		}
	}
	return keys
}

func (w *world) print(t *testing.T) string {
	selectors, err := json.Marshal(w.selectors)
	if err != nil {
		t.Fatal(err)
	}
	return w.printConfig(t) + w.printStatus(t) + w.printProxySpecs(t) + w.printSecretRequests(t) + string(selectors)
}

func scratch(t *testing.T, o translate.Options, inputs []input) string {
	t.Helper()
	w := newWorldWith(o)
	for _, i := range inputs {
		w.upsert(i)
	}
	w.commit(t)
	return w.print(t)
}

func sortedIDs(m map[config.ID]*config.Resource) []config.ID {
	return slices.SortedFunc(maps.Keys(m), config.CompareID)
}

// firstDifference shows the lines around the first one that differs.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	around := func(lines []string) string {
		return strings.Join(lines[min(max(i-3, 0), len(lines)):min(i+5, len(lines))], "\n")
	}
	return fmt.Sprintf("at line %d\nwant:\n%s\ngot:\n%s", i+1, around(w), around(g))
}
