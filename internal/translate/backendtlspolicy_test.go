package translate_test

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
	"github.com/moongate-dev/moongate/internal/translate/certificate"
)

// tlsPolicies has some routes, of which one leads to a Service with a policy and a ConfigMap.
func tlsPolicies(t *testing.T) (w *world, configMap func(file string) *corev1.ConfigMap) {
	t.Helper()
	w = newWorld()
	gc := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	w.Upsert(gc)
	w.Upsert(crowdGateway(1))
	for i := range 50 {
		w.Upsert(crowdRoute(i, "/"))
		w.Upsert(crowdService(i))
		w.Upsert(crowdSlice(i, "10.0.0.1"))
	}
	configMap = func(file string) *corev1.ConfigMap {
		text, err := os.ReadFile("testdata/pem/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ca"}, Data: map[string]string{"ca.crt": string(text)}}
	}
	p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy"}}
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s7"}}}
	p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com", CACertificateRefs: []gwv1.LocalObjectReference{{Kind: "ConfigMap", Name: "ca"}}}
	w.Upsert(p)
	w.Upsert(configMap("example.crt"))
	w.commit(t)
	return w, configMap
}

// TestAuthoritiesChangeTheBackendAlone: new authorities come beside an update of the Backend that they are for, and no route is looked at, as
// long as there are any.
func TestAuthoritiesChangeTheBackendAlone(t *testing.T) {
	w, configMap := tlsPolicies(t)
	key := config.ID{Kind: config.KindBackend, Key: "Service/default/s7/80"}
	before := w.config[key].GetBackend().GetTls()
	if before.GetServerName() != "web.example.com" || len(before.GetAuthorities()) != 1 {
		t.Fatalf("before: %v", w.config[key])
	}
	w.Upsert(configMap("other.crt"))
	r := w.commit(t)
	if want := map[string]int{"authorities": 1, "authorities that backends use": 1, "BackendTLSPolicy": 1, "refused BackendTLSPolicy": 1, "backend": 1, "authorities config": 1, "BackendTLSPolicy status": 1, "endpoints": 1, "routes to a backend with sessions": 1}; !maps.Equal(r.Stats.RunsByName, want) {
		t.Errorf("ran %v, want %v", r.Stats.RunsByName, want)
	}
	if up, gone := r.Config.Upserts, r.Config.Removals; len(up) != 2 || up[0].ID() != key || up[1].GetAuthorities() == nil || len(r.Statuses) != 0 ||
		len(gone) != 1 || gone[0] != (config.ID{Kind: config.KindAuthorities, Key: before.GetAuthorities()[0]}) {
		t.Errorf("changed %v, removed %v, statuses %v", up, gone, r.Statuses)
	}

	// ConfigMaps that no policy refers to are not parsed.
	other := configMap("example.crt")
	other.Name = "other"
	w.Upsert(other)
	if r = w.commit(t); r.Stats.Runs != 1 || !r.Config.Empty() {
		t.Errorf("another ConfigMap: ran %v", r.Stats.RunsByName)
	}

	w.Delete(translate.Kind(kind.ConfigMap.Name), "default", "ca")
	r = w.commit(t)
	if !slices.Contains(r.Config.Removals, key) || r.Stats.RunsByName["route"] != 1 {
		t.Errorf("without the ConfigMap: removed %v, ran %v", r.Config.Removals, r.Stats.RunsByName)
	}
}

func readPEM(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/pem/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTrustBundleComesAndGoes checks that a policy follows its ClusterTrustBundle, and whether the API server serves any.
func TestTrustBundleComesAndGoes(t *testing.T) {
	w := manyTLSServices(t, 1, readPEM(t, "example.crt"))
	w.Delete(translate.Kind(kind.ConfigMap.Name), "default", "ca0")
	p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p0"}}
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s0"}}}
	p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com",
		CACertificateRefs: []gwv1.LocalObjectReference{{Group: certificatesv1.GroupName, Kind: "ClusterTrustBundle", Name: "roots"}}}
	w.Upsert(p)
	bundle := func(file string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "roots"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: readPEM(t, file)}}
	}
	served := translate.Installed{Kinds: []translate.Kind{translate.KindGateway, translate.KindHTTPRoute, translate.KindBackendTLSPolicy, translate.Kind(kind.ClusterTrustBundle.Name)}}
	unserved := translate.Installed{Kinds: served.Kinds[:3]}
	for _, step := range []struct {
		name    string
		do      func()
		trusted string // config.Authorities.pem, "" for a policy that is refused
		reason  string // of the policy's ResolvedRefs
	}{
		{"not there", func() {}, "", "InvalidCACertificateRef"},
		{"created", func() { w.Upsert(bundle("example.crt")) }, "example.crt", "ResolvedRefs"},
		{"updated", func() { w.Upsert(bundle("other.crt")) }, "other.crt", "ResolvedRefs"},
		{"served, as is told now", func() { w.SetInstalled(served) }, "other.crt", "ResolvedRefs"},
		{"deleted", func() { w.Delete(translate.Kind(kind.ClusterTrustBundle.Name), "", "roots") }, "", "InvalidCACertificateRef"},
		{"created again", func() { w.Upsert(bundle("example.crt")) }, "example.crt", "ResolvedRefs"},
		{"not served any more", func() { w.SetInstalled(unserved) }, "", "InvalidKind"},
		{"served again", func() { w.SetInstalled(served) }, "example.crt", "ResolvedRefs"},
	} {
		step.do()
		w.commit(t)
		trusted := ""
		for id, r := range w.config {
			if id.Kind == config.KindAuthorities {
				trusted += r.GetAuthorities().GetPem()
			}
		}
		want := ""
		if step.trusted != "" {
			want = readPEM(t, step.trusted)
		}
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "BackendTLSPolicy", Namespace: "default", Name: "p0"}].Status.(*gwv1.PolicyStatus)
		resolved := meta.FindStatusCondition(s.Ancestors[0].Conditions, string(gwv1.BackendTLSPolicyConditionResolvedRefs))
		if trusted != want || resolved.Reason != step.reason {
			t.Errorf("%s: %d bytes are trusted, want %d; ResolvedRefs %s (%s)", step.name, len(trusted), len(want), resolved.Reason, resolved.Message)
		}
	}
}

// manyTLSServices has Services with a policy each, whose authorities are in one ConfigMap for even and in one for odd numbers, of the same text.
func manyTLSServices(t *testing.T, services int, text string) *world {
	w := newWorld()
	w.Upsert(&gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}})
	w.Upsert(crowdGateway(1))
	for i := range services {
		w.Upsert(crowdRoute(i, "/"))
		w.Upsert(crowdService(i))
		p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)}}
		p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: gwv1.ObjectName(fmt.Sprint("s", i))}}}
		p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com", CACertificateRefs: []gwv1.LocalObjectReference{{Kind: "ConfigMap", Name: gwv1.ObjectName(fmt.Sprint("ca", i%2))}}}
		w.Upsert(p)
	}
	setAuthorities(w, text)
	w.commit(t)
	return w
}

// setAuthorities sets the ConfigMaps of manyTLSServices, each with memory of its own.
func setAuthorities(w *world, text string) {
	for i := range 2 {
		w.Upsert(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("ca", i)}, Data: map[string]string{"ca.crt": strings.Clone(text)}})
	}
}

// TestAuthoritiesAreShared: a large bundle is in the configuration once, however many policies and ConfigMaps have it, and another one comes
// as one resource; of the policies and Backends it takes a key.
func TestAuthoritiesAreShared(t *testing.T) {
	one, err := os.ReadFile("testdata/pem/example.crt")
	if err != nil {
		t.Fatal(err)
	}
	const services = 1000
	large := strings.Repeat(string(one), certificate.MaxAuthorityBytes/len(one))
	heap := func(text string) (w *world, used int) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		w = manyTLSServices(t, services, text)
		runtime.GC()
		runtime.ReadMemStats(&after)
		return w, int(after.HeapAlloc) - int(before.HeapAlloc)
	}
	small, base := heap(string(one))
	w, used := heap(large)
	// The texts of two ConfigMaps, what is read of them, and what garbage is left.
	if more := used - base; more > 3<<20 {
		t.Errorf("%d KiB more of heap for %d policies with a bundle of %d KiB than with a small one", more>>10, services, len(large)>>10)
	}
	runtime.KeepAlive(small)

	setAuthorities(w, large[:len(large)/2/len(one)*len(one)])
	r := w.commit(t)
	bundles, size := 0, 0
	for _, u := range r.Config.Upserts {
		if u.GetAuthorities() != nil {
			bundles++
		} else {
			size = max(size, proto.Size(u))
		}
	}
	if bundles != 1 || size > 512 || len(r.Config.Removals) != 1 || len(r.Statuses) != 0 {
		t.Errorf("another bundle: %d Authorities, other resources of up to %d bytes, removed %v, %d statuses", bundles, size, r.Config.Removals, len(r.Statuses))
	}
}

// TestAuthoritiesOfAPolicyAreBounded: those of several ConfigMaps count together, each once.
func TestAuthoritiesOfAPolicyAreBounded(t *testing.T) {
	w, configMap := tlsPolicies(t)
	p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy", Generation: 2}}
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s7"}}}
	p.Spec.Validation.Hostname = "web.example.com"
	for i, file := range []string{"example.crt", "other.crt"} {
		c := configMap(file)
		c.Name = fmt.Sprint("large", i)
		c.Data["ca.crt"] = strings.Repeat(c.Data["ca.crt"], (300<<10)/len(c.Data["ca.crt"]))
		w.Upsert(c)
		p.Spec.Validation.CACertificateRefs = append(p.Spec.Validation.CACertificateRefs, gwv1.LocalObjectReference{Kind: "ConfigMap", Name: gwv1.ObjectName(c.Name)})
	}
	accepted := func() *metav1.Condition {
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "BackendTLSPolicy", Namespace: "default", Name: "policy"}]
		return meta.FindStatusCondition(s.Status.(*gwv1.PolicyStatus).Ancestors[0].Conditions, string(gwv1.PolicyConditionAccepted))
	}
	w.Upsert(p)
	w.commit(t)
	if c := accepted(); c.Reason != string(gwv1.PolicyReasonInvalid) || !strings.Contains(c.Message, "spec.validation.caCertificateRefs: ") || !strings.Contains(c.Message, "524288") {
		t.Errorf("beyond the bound: %+v", c)
	}
	if b := w.config[config.ID{Kind: config.KindBackend, Key: "Service/default/s7/80"}]; b != nil {
		t.Errorf("the Service is reached all the same: %v", b)
	}
	p = p.DeepCopy()
	p.Generation, p.Spec.Validation.CACertificateRefs[1] = 3, p.Spec.Validation.CACertificateRefs[0]
	w.Upsert(p)
	w.commit(t)
	if c := accepted(); c.Status != metav1.ConditionTrue {
		t.Errorf("one ConfigMap twice: %+v", c)
	}
}

// TestPoliciesOfUnusedServices: neither a policy nor its ConfigMap is read before a route names a Service that it is for.
func TestPoliciesOfUnusedServices(t *testing.T) {
	w, configMap := tlsPolicies(t)
	p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unused"}}
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s100"}}}
	p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com", CACertificateRefs: []gwv1.LocalObjectReference{{Kind: "ConfigMap", Name: "unused"}}}
	c := configMap("other.crt")
	c.Name = "unused"
	w.Upsert(p)
	w.Upsert(c)
	w.Upsert(crowdService(100))
	if r := w.commit(t); r.Stats.RunsByName["authorities"] > 1 || r.Stats.RunsByName["BackendTLSPolicy"] > 0 || !r.Config.Empty() {
		t.Errorf("ran %v", r.Stats.RunsByName)
	}
	w.Upsert(crowdRoute(100, "/"))
	w.commit(t)
	if tls := w.config[config.ID{Kind: config.KindBackend, Key: "Service/default/s100/80"}].GetBackend().GetTls(); len(tls.GetAuthorities()) != 1 {
		t.Errorf("named by a route: %v", tls)
	}
}

// TestSixteenAncestors: of more Gateways the oldest 16 are named, and a new one changes nothing. The others say themselves what the policy's
// status has no place for.
func TestSixteenAncestors(t *testing.T) {
	w, _ := tlsPolicies(t)
	named := func() (all []string) {
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "BackendTLSPolicy", Namespace: "default", Name: "policy"}]
		for _, a := range s.Status.(*gwv1.PolicyStatus).Ancestors {
			all = append(all, string(a.AncestorRef.Name))
		}
		return all
	}
	r := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"}}
	port := gwv1.PortNumber(80)
	backend := gwv1.HTTPBackendRef{BackendRef: gwv1.BackendRef{BackendObjectReference: gwv1.BackendObjectReference{Name: "s7", Port: &port}}}
	r.Spec.Rules = []gwv1.HTTPRouteRule{{BackendRefs: []gwv1.HTTPBackendRef{backend}}}
	add := func(name string, year int) {
		gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		gw.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		gw.Spec.GatewayClassName = "moongate"
		gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: gwv1.PortNumber(1000 + year), Protocol: gwv1.HTTPProtocolType}}
		w.Upsert(gw)
		r = r.DeepCopy()
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, gwv1.ParentReference{Name: gwv1.ObjectName(name)})
		w.Upsert(r)
		w.commit(t)
	}
	for i := range 15 {
		add(fmt.Sprintf("z-%02d", i), 2000+i)
	}
	unnamed := func() (gateways []string) {
		for key, s := range w.statuses {
			if gw, ok := s.Status.(*gwv1.GatewayStatus); ok {
				c := meta.FindStatusCondition(gw.Conditions, string(gwv1.GatewayConditionAccepted))
				if c.Status == metav1.ConditionTrue && strings.Contains(c.Message, `BackendTLSPolicy "default/policy" is for backends of this Gateway`) {
					gateways = append(gateways, key.Name)
				}
			}
		}
		slices.Sort(gateways)
		return gateways
	}
	full := named()
	if len(full) != 16 || len(unnamed()) != 0 {
		t.Fatalf("named %v, said by %v", full, unnamed())
	}
	add("a-young", 2025)
	if got := named(); !slices.Equal(got, full) {
		t.Errorf("after a young one: %v, want %v", got, full)
	}
	if got := unnamed(); !slices.Equal(got, []string{"a-young"}) {
		t.Errorf("said by %v", got)
	}
	add("b-old", 1990)
	if got := named(); len(got) != 16 || !slices.Contains(got, "b-old") {
		t.Errorf("after an old one: %v", got)
	}
	if got := unnamed(); !slices.Equal(got, []string{"a-young", "z-14"}) {
		t.Errorf("after an old one said by %v", got)
	}
	w.Delete(translate.KindBackendTLSPolicy, "default", "policy")
	w.commit(t)
	if got := unnamed(); len(got) != 0 {
		t.Errorf("without the policy said by %v", got)
	}
}

// TestRouteBesideManyToOneService: a route to a Service with a policy is one among thousands of which the policy's status reads none.
func TestRouteBesideManyToOneService(t *testing.T) {
	w, _ := tlsPolicies(t)
	to := func(i int, path string) *gwv1.HTTPRoute {
		r := crowdRoute(i, path)
		r.Spec.Rules[0].BackendRefs[0].Name = "s7"
		return r
	}
	for i := range 2000 {
		w.Upsert(to(i, "/"))
	}
	w.commit(t)
	for what, do := range map[string]func(){
		"a new route":          func() { w.Upsert(to(2000, "/")) },
		"a route that differs": func() { w.Upsert(to(7, "/new")) },
		"a route that goes":    func() { w.Delete(translate.KindHTTPRoute, "default", "r8") },
	} {
		do()
		if r := w.commit(t); r.Stats.RunsByName["BackendTLSPolicy status"] != 0 || r.Stats.Reads > 50 {
			t.Errorf("%s: ran %v, read %v", what, r.Stats.RunsByName, r.Stats.ReadsByName)
		}
	}
	r := w.Commit()
	w.Delete(translate.KindGateway, "default", "gw")
	if r = w.commit(t); r.Stats.RunsByName["BackendTLSPolicy status"] != 1 || len(w.statuses) != 1 {
		t.Errorf("without the Gateway: ran %v, statuses %v", r.Stats.RunsByName, w.statuses)
	}
}
