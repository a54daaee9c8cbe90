package listing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// answers are what an API server says, by path; a number is an error of that code.
type answers map[string]any

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if c := r.URL.Query().Get("continue"); c != "" {
		path += "?continue=" + c
	} else if strings.HasSuffix(path, "routes") && r.URL.Query().Get("limit") == "" {
		path += "?all"
	}
	answer, ok := a[path]
	code, isCode := answer.(int)
	if !ok {
		code, isCode = http.StatusNotFound, true
	}
	w.Header().Set("Content-Type", "application/json")
	if isCode {
		reason := map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden, 410: metav1.StatusReasonExpired, 401: metav1.StatusReasonUnauthorized}[code]
		w.WriteHeader(code)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: fmt.Sprint("code ", code)}
	}
	json.NewEncoder(w).Encode(answer)
}

const group = "/apis/gateway.networking.k8s.io"

func serve(t *testing.T, a answers) *rest.Config {
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func versions(names ...string) any {
	var g metav1.APIGroup
	for _, n := range names {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{Version: n})
	}
	return g
}

// resources are "<Kind> <resource>", with a star where they are in no namespace.
func resources(names ...string) any {
	var l metav1.APIResourceList
	for _, n := range names {
		kind, resource, _ := strings.Cut(n, " ")
		resource, cluster := strings.CutSuffix(resource, "*")
		l.APIResources = append(l.APIResources, metav1.APIResource{Kind: kind, Name: resource, Namespaced: !cluster, Verbs: metav1.Verbs{"get", "list"}},
			metav1.APIResource{Kind: kind, Name: resource + "/status", Namespaced: !cluster, Verbs: metav1.Verbs{"get", "patch"}})
	}
	return l
}

func list(next string, names ...string) any {
	items := []any{}
	for _, n := range names {
		namespace, name, _ := strings.Cut(n, "/")
		items = append(items, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name, "managedFields": []any{},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}"}}})
	}
	return map[string]any{"metadata": map[string]any{"continue": next}, "items": items}
}

func names(items []map[string]any) string {
	var all []string
	for _, i := range items {
		k := keyOf(i)
		all = append(all, fmt.Sprintf("%s %s/%s of %s", k.Kind, k.Namespace, k.Name, i["apiVersion"]))
	}
	return strings.Join(all, "\n")
}

func cluster() answers {
	return answers{
		group:                         versions("v1", "v1alpha2"),
		group + "/v1":                 resources("GatewayClass gatewayclasses*", "Gateway gateways", "HTTPRoute httproutes", "ReferenceGrant referencegrants"),
		group + "/v1alpha2":           resources("TLSRoute tlsroutes", "HTTPRoute httproutes"),
		group + "/v1/gatewayclasses":  list("", "/moongate"),
		group + "/v1/gateways":        list("", "b/gw", "a/gw"),
		group + "/v1/httproutes":      list("", "a/web"),
		group + "/v1alpha2/tlsroutes": list("", "a/tls"),
	}
}

func TestList(t *testing.T) {
	items, problems, err := List(t.Context(), serve(t, cluster()), "")
	const v1 = "gateway.networking.k8s.io/v1"
	want := "Gateway a/gw of " + v1 + "\nGateway b/gw of " + v1 + "\nGatewayClass /moongate of " + v1 + "\nHTTPRoute a/web of " + v1 + "\nTLSRoute a/tls of " + v1 + "alpha2"
	if got := names(items); err != nil || len(problems) > 0 || got != want {
		t.Errorf("%v, %v\ngot\n%s\nwant\n%s", err, problems, got, want)
	}
	if text, _ := json.Marshal(items); strings.Contains(string(text), "managedFields") || strings.Contains(string(text), "annotations") {
		t.Errorf("what is for machines is shown: %s", text)
	}
}

// TestAll: what has no status is there, too, of the core group as well, in versions that are known.
func TestAll(t *testing.T) {
	a := cluster()
	a[group+"/v1/referencegrants"] = list("", "a/grant")
	a[group] = versions("v9", "v1", "v1alpha2")
	a[group+"/v9"] = resources("Gateway gateways")
	a["/api/v1"] = resources("Secret secrets", "Namespace namespaces*", "Service services", "Pod pods")
	a["/api/v1/secrets"], a["/api/v1/namespaces"], a["/api/v1/services"] = http.StatusForbidden, list("", "/a"), list("", "a/app")
	items, problems, err := All(t.Context(), serve(t, a))
	const v1 = "gateway.networking.k8s.io/v1"
	want := "Gateway a/gw of " + v1 + "\nGateway b/gw of " + v1 + "\nGatewayClass /moongate of " + v1 + "\nHTTPRoute a/web of " + v1 + "\nNamespace /a of v1\nReferenceGrant a/grant of " + v1 +
		"\nService a/app of v1\nTLSRoute a/tls of " + v1 + "alpha2"
	if got := names(items); err != nil || got != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, want)
	}
	if len(problems) != 1 || problems[0].Kind != "Secret" || problems[0].Remedy != "ask for the verb list on secrets" {
		t.Errorf("%+v", problems)
	}
	delete(a, group)
	if _, _, err := All(t.Context(), serve(t, a)); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("without the Gateway API: %v", err)
	}
}

// TestPastVersion: what an older CRD serves says that it is of the version that manifests have.
func TestPastVersion(t *testing.T) {
	a := cluster()
	a[group+"/v1alpha2"] = resources("GRPCRoute grpcroutes")
	a[group+"/v1alpha2/grpcroutes"] = list("", "a/rpc")
	items, _, err := All(t.Context(), serve(t, a))
	if got := names(items); err != nil || !strings.Contains(got, "GRPCRoute a/rpc of gateway.networking.k8s.io/v1\n") {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestSecretsByType: those that no listener can use are not asked for, in the first page and after one that expired.
func TestSecretsByType(t *testing.T) {
	a := cluster()
	a["/api/v1"] = resources("Secret secrets")
	a["/api/v1/secrets"], a["/api/v1/secrets?continue=two"] = list("two", "a/cert"), http.StatusGone
	var asked []string
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/secrets" {
			a.ServeHTTP(w, r)
			return
		}
		q := r.URL.Query()
		mu.Lock()
		asked = append(asked, q.Get("fieldSelector"))
		mu.Unlock()
		if q.Get("limit") == "" { // the answer without pages, whose continue a client follows all the same
			json.NewEncoder(w).Encode(list(map[bool]string{true: "rest", false: ""}[q.Get("continue") == ""], "a/"+q.Get("continue")+"cert"))
			return
		}
		a.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	items, problems, err := All(t.Context(), &rest.Config{Host: server.URL})
	if err != nil || len(problems) > 0 || !strings.Contains(names(items), "Secret a/cert of v1") || !strings.Contains(names(items), "Secret a/restcert of v1") {
		t.Errorf("%v, %v\n%s", err, problems, names(items))
	}
	if len(asked) != 4 || slices.ContainsFunc(asked, func(s string) bool { return s != "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token" }) {
		t.Errorf("asked for %q", asked)
	}
}

func TestOneNamespace(t *testing.T) {
	a := cluster()
	a[group+"/v1/namespaces/a/gateways"], a[group+"/v1/namespaces/a/httproutes"] = list("", "a/gw"), list("")
	items, _, err := List(t.Context(), serve(t, a), "a")
	if got := names(items); err != nil || strings.Count(got, "\n") != 1 || !strings.Contains(got, "a/gw") || !strings.Contains(got, "/moongate") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestOwnGroup(t *testing.T) {
	items, _, err := List(t.Context(), serve(t, answers{
		"/apis/moongate.dev":                            versions("v1alpha1"),
		"/apis/moongate.dev/v1alpha1":                   resources("GatewayParameters gatewayparameters"),
		"/apis/moongate.dev/v1alpha1/gatewayparameters": list("", "a/big"),
	}), "")
	if got := names(items); err != nil || got != "GatewayParameters a/big of moongate.dev/v1alpha1" {
		t.Errorf("%v %s", err, got)
	}
}

func TestPages(t *testing.T) {
	for _, expired := range []bool{false, true} {
		a := cluster()
		a[group+"/v1/httproutes"] = list("two", "a/1")
		a[group+"/v1/httproutes?continue=two"] = list("three", "a/2")
		a[group+"/v1/httproutes?continue=three"] = list("", "a/3")
		if expired {
			a[group+"/v1/httproutes?continue=three"] = http.StatusGone
			a[group+"/v1/httproutes?all"] = list("", "a/1", "a/2", "a/3")
		}
		items, problems, err := List(t.Context(), serve(t, a), "")
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		items = slices.DeleteFunc(items, func(i map[string]any) bool { return i["kind"] != "HTTPRoute" })
		if len(items) != 3 {
			t.Errorf("expired %v: %s", expired, names(items))
		}
	}
}

func TestPartlyForbidden(t *testing.T) {
	a := cluster()
	a[group+"/v1/httproutes"] = http.StatusForbidden
	delete(a, group+"/v1alpha2/tlsroutes") // uninstalled meanwhile
	items, problems, err := List(t.Context(), serve(t, a), "")
	if err != nil || len(items) != 3 || len(problems) != 1 {
		t.Fatalf("%v, %d items, %v", err, len(items), problems)
	}
	if p := problems[0]; p.Kind != "HTTPRoute" || !strings.Contains(p.Remedy, "name a namespace") || !strings.Contains(p.Remedy, "httproutes.gateway.networking.k8s.io") {
		t.Errorf("%+v", p)
	}
}

func TestNothingToRead(t *testing.T) {
	if _, _, err := List(t.Context(), serve(t, answers{}), ""); err != ErrNotInstalled {
		t.Errorf("without the Gateway API: %v", err)
	}
	a := cluster()
	a[group] = http.StatusUnauthorized
	if _, _, err := List(t.Context(), serve(t, a), ""); err == nil {
		t.Error("without rights there is no error")
	}
}

// TestLastRenewed: of several Leases of a name and a controller the one counts that was renewed last, and nothing is said that is not
// known.
func TestLastRenewed(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	lease := func(namespace string, at time.Time) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "x"}, "spec": map[string]any{"renewTime": at.Format("2006-01-02T15:04:05.000000Z07:00")}}
	}
	of := func(controller string, lease map[string]any) map[string]any {
		lease["metadata"].(map[string]any)["annotations"] = map[string]any{"example.com/controller": controller}
		return lease
	}
	list := func(leases ...map[string]any) any { return map[string]any{"items": leases} }
	for name, c := range map[string]struct {
		answer    any
		namespace string
		at        time.Time
	}{
		"one":                         {list(lease("a", noon)), "a", noon},
		"two":                         {list(lease("a", noon), lease("b", noon.Add(time.Second))), "b", noon.Add(time.Second)},
		"two, the latter first":       {list(lease("b", noon.Add(time.Second)), lease("a", noon)), "b", noon.Add(time.Second)},
		"another controller's":        {list(lease("a", noon), of("example.com/other", lease("b", noon.Add(time.Second)))), "a", noon},
		"only another controller's":   {list(of("example.com/other", lease("b", noon))), "", time.Time{}},
		"the controller's":            {list(of("example.com/this", lease("a", noon)), of("example.com/other", lease("b", noon.Add(time.Second))), lease("c", noon.Add(time.Second))), "a", noon},
		"two of the controller":       {list(of("example.com/this", lease("a", noon)), of("example.com/this", lease("b", noon.Add(time.Second)))), "b", noon.Add(time.Second)},
		"none":                        {list(), "", time.Time{}},
		"never renewed":               {list(map[string]any{"metadata": map[string]any{"namespace": "a", "name": "x"}}), "", time.Time{}},
		"they may not be read":        {403, "", time.Time{}},
		"there are no Leases at all":  {404, "", time.Time{}},
		"what is no list of anything": {"x", "", time.Time{}},
	} {
		got, at := LastRenewed(t.Context(), serve(t, answers{"/apis/coordination.k8s.io/v1/leases": c.answer}), "x", "example.com/controller", "example.com/this")
		if got.Namespace != c.namespace || !at.Equal(c.at) {
			t.Errorf("%s: %v at %v, want that of namespace %q at %v", name, got, at, c.namespace, c.at)
		}
	}
}
