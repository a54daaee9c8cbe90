package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// statusOf is what a gateway answers to /status.
const statusOf = `{"items":[
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"moongate"},"spec":{"controllerName":"moongate.dev/gateway-controller"},"status":{"conditions":[{"type":"Accepted","status":"True"}]}},
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"public","namespace":"infra"},"spec":{"gatewayClassName":"moongate"},"status":{"conditions":[{"type":"Accepted","status":"True"}]}},
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"cart","namespace":"shop"},"spec":{"parentRefs":[{"name":"public","namespace":"infra"}]},
  "status":{"parents":[{"parentRef":{"name":"public","namespace":"infra"},"controllerName":"moongate.dev/gateway-controller","conditions":[{"type":"Accepted","status":"True"}]}]}},
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"blog","namespace":"press"},"spec":{"parentRefs":[{"name":"public","namespace":"infra"}]},"status":{}}],
"problems":[{"file":"a.yaml","line":3,"object":"HTTPRoute shop/broken","message":"is broken"},{"file":"b.yaml","message":"is no YAML"}]}`

// TestStatusFilters checks which objects and problems arguments and -n select.
func TestStatusFilters(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(statusOf)) }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct {
		args  string
		code  int
		shown string // names of objects and problems, or what is on stderr
	}{
		{"", exitOK, "moongate public cart blog broken YAML"},
		{"httproute", exitOK, "cart blog broken"},
		{"HTTPRoutes.gateway.networking.k8s.io", exitOK, "cart blog broken"},
		{"httproute/cart", exitOK, "cart"},
		{"gtw", exitOK, "public"},
		{"httproutes cart blog", exitOK, "cart blog"},
		{"gateway httproute/blog", exitOK, "public blog"},
		{"-n shop", exitOK, "moongate cart broken YAML"},
		{"-n shop httproute", exitOK, "cart broken"},
		{"httproute/broken", exitOK, "broken"},
		{"httproute/crat", exitProblems, "moongate: there is no HTTPRoute crat; did you mean cart?"},
		{"-n press httproute/cart", exitProblems, "moongate: there is no HTTPRoute cart in namespace press"},
		{"httprout", exitUsage, `moongate: there is no kind "httprout" here; did you mean httproute?`},
		{"pod/a", exitUsage, `moongate: there is no kind "pod" here; use one of `},
		{"httproute/shop/cart", exitUsage, `"httproute/shop/cart" is not KIND/NAME`},
		{"httproute/", exitUsage, `"httproute/" is not KIND/NAME`},
		{"--watch -o json", exitUsage, "--watch prints tables"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"status", "--admin-address", address}, strings.Fields(c.args)...)
		if code := Main(args, &stdout, &stderr); code != c.code {
			t.Errorf("status %s: exit code %d, want %d\n%s%s", c.args, code, c.code, &stdout, &stderr)
		}
		if c.code != exitOK {
			if !strings.Contains(stderr.String(), c.shown) || stdout.Len() > 0 {
				t.Errorf("status %s: %q, want %q, and nothing on stdout: %s", c.args, &stderr, c.shown, &stdout)
			}
			continue
		}
		for _, name := range []string{"moongate", "infra/public", "shop/cart", "press/blog", "broken", "YAML"} {
			_, short, _ := strings.Cut("/"+name, "/")
			if _, last, ok := strings.Cut(short, "/"); ok {
				short = last
			}
			object := map[string]string{"moongate": "GatewayClass moongate", "infra/public": "Gateway infra/public"}[name]
			if object == "" {
				object = name
			}
			if got, want := strings.Contains(stdout.String(), object), strings.Contains(" "+c.shown+" ", " "+short+" "); got != want {
				t.Errorf("status %s: %s shown: %t\n%s", c.args, name, got, &stdout)
			}
		}
		var asJSON bytes.Buffer
		if Main(append(args, "-o", "json"), &asJSON, &stderr); strings.Contains(asJSON.String(), `"name": "cart"`) != strings.Contains(c.shown, "cart") {
			t.Errorf("status %s -o json: %s", c.args, &asJSON)
		}
	}
}

// TestStatusSuggests checks that status names what was probably meant, as check does.
func TestStatusSuggests(t *testing.T) {
	const items = `{"items": [{"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"namespace": "infra", "name": "public"}, "spec": {"gatewayClassName": "moongate", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}},
{"kind": "HTTPRoute", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"namespace": "shop", "name": "cart"}, "spec": {}, "status": {"parents": [{"controllerName": "moongate.dev/gateway-controller", "parentRef": {"name": "public", "namespace": "infra"},
"conditions": [{"type": "Accepted", "status": "False", "reason": "NoMatchingParent", "message": "Gateway infra/public has no listener named \"htp\"; correct the name"}]}]}}], "problems": []}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(items)) }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	code, out := run("status", "--admin-address", address, "httproute/cart")
	if want := `has no listener named "htp"; did you mean http?`; code != exitOK || !strings.Contains(out, want) {
		t.Errorf("exit code %d, and no %s in\n%s", code, want, out)
	}
}

// TestStatusOfUnknownForms: an object in a form that this version does not know is shown all the same, and its name may be meant.
func TestStatusOfUnknownForms(t *testing.T) {
	const answer = `{"items":[
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"strange","namespace":"shop"},"spec":{"hostnames":"x"},"status":{}},
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"public","namespace":"shop"},"spec":{"listeners":{}},"status":{}},
 {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"cart","namespace":"shop"},"spec":{"parentRefs":[{"name":"public"},{"name":"pubic"}]},
  "status":{"parents":[{"parentRef":{"name":"public"},"controllerName":"moongate.dev/gateway-controller","conditions":[{"type":"Accepted","status":"False","message":"Gateway shop/pubic does not exist; create it or correct the name"}]}]}}],"problems":[]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(answer)) }))
	defer server.Close()
	for _, args := range []string{"status --admin-address", "check --admin"} {
		var stdout, stderr bytes.Buffer
		Main(append(strings.Fields(args), strings.TrimPrefix(server.URL, "http://")), &stdout, &stderr)
		text := stdout.String() + stderr.String()
		for _, want := range []string{"shop/strange", "did you mean public?"} {
			if !strings.Contains(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "shop strange", "shop/strange"), want) {
				t.Errorf("%s: nothing of %q in\n%s", args, want, text)
			}
		}
		if strings.Contains(text, "no Gateway shop/public,") || strings.Contains(text, "cannot unmarshal") {
			t.Errorf("%s:\n%s", args, text)
		}
	}
}

// TestStatusWatch checks that only what has changed is printed again.
func TestStatusWatch(t *testing.T) {
	answer := func(edit func(*admin.Status)) func() (*admin.Status, error) {
		return func() (*admin.Status, error) {
			var status admin.Status
			if err := json.Unmarshal([]byte(statusOf), &status); err != nil {
				return nil, err
			}
			edit(&status)
			return &status, nil
		}
	}
	same, away := answer(func(*admin.Status) {}), func() (*admin.Status, error) { return nil, errors.New("nobody answers") }
	accepted := func(s *admin.Status, i int, value string) {
		parent := s.Items[i].(map[string]any)["status"].(map[string]any)["parents"].([]any)[0].(map[string]any)
		parent["conditions"].([]any)[0].(map[string]any)["status"] = value
	}
	answers := []func() (*admin.Status, error){
		same, same, away, away, same,
		answer(func(s *admin.Status) { accepted(s, 2, "False") }),
		answer(func(s *admin.Status) { s.Items, s.Problems = s.Items[:2], s.Problems[:1] }),
		same,
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	var printed []string
	asked := 0
	w := &statusWatch{out: &stdout, errs: &stderr, filter: &objectFilter{}}
	w.ask = func() (*admin.Status, error) {
		printed = append(printed, stdout.String())
		stdout.Reset()
		if asked++; asked > len(answers) {
			cancel()
			return nil, ctx.Err()
		}
		return answers[asked-1]()
	}
	if err := w.run(ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ has, hasNot string }{
		1: {"HTTPRoute shop/cart", "gone"},
		2: {"", "OBJECT"}, 3: {"", "OBJECT"}, 4: {"", "OBJECT"}, 5: {"", "OBJECT"},
		6: {"Accepted=False", "press/blog"},
		7: {"HTTPRoute press/blog is gone\nHTTPRoute shop/cart is gone\nno more: problem: b.yaml: is no YAML", "OBJECT"},
		8: {"problem: b.yaml: is no YAML", "Gateway infra/public"},
	} {
		if got := printed[i]; !strings.Contains(got, c.has) || c.hasNot != "" && strings.Contains(got, c.hasNot) || c.has == "" && got != "" {
			t.Errorf("after answer %d: %q", i, got)
		}
	}
	if got := stderr.String(); strings.Count(got, "nobody answers") != 1 || strings.Count(got, "answers again") != 1 {
		t.Errorf("stderr: %q", got)
	}
	w = &statusWatch{out: &stdout, errs: &stderr, filter: &objectFilter{}, ask: away}
	if err := w.run(t.Context(), time.Hour); err == nil {
		t.Error("that nobody answers at first is no error")
	}
}

// TestStatusWatchOfNothing: a name that is not there yet is waited for, and said once, with what may have been meant.
func TestStatusWatchOfNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	filter, err := newObjectFilter("", []string{"httproute/cartt"})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	asked := 0
	w := &statusWatch{out: &stdout, errs: &stderr, filter: filter}
	w.ask = func() (*admin.Status, error) {
		if asked++; asked > 3 {
			cancel()
			return nil, ctx.Err()
		}
		var status admin.Status
		return &status, json.Unmarshal([]byte(statusOf), &status)
	}
	if err := w.run(ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := stderr.String(); strings.Count(got, "cartt") != 1 || !strings.Contains(got, "did you mean") || !strings.Contains(got, "waiting for it") {
		t.Errorf("%q", got)
	}
}

// TestStatusOfRefused: what refers to a Service or a ConfigMap that was refused is not told that it does not exist, by no verb and not in the log, nor to mean that very name.
func TestStatusOfRefused(t *testing.T) {
	port := fmt.Sprint(freePort(t))
	path := testkit.WriteFile(t, "all.yaml", []byte(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: `+port+`}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: cart, port: 80}]}, {matches: [{path: {value: /secure}}], backendRefs: [{name: secure, port: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {ports: [{port: 80}, {port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: secure}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: secure}
spec: {targetRefs: [{group: "", kind: Service, name: secure}], validation: {hostname: secure.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca}
data: {ca.crt: [x]}
`))
	log := &testkit.Log{}
	ready := make(chan Running, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, RunOptions{Files: []string{path}, Bind: []string{"127.0.0.1"}, AdminAddress: "127.0.0.1:0", Stderr: log, Ready: func(r Running) { ready <- r }, EngineFlags: EngineFlags{AccessLog: "off", RequestIDs: defaultRequestIDs, Stdout: log}})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	address := (<-ready).Admin
	const service, configMap = "Service default/cart is not valid; correct what is reported of it", "ConfigMap default/ca is not valid; correct what is reported of it"
	testkit.Eventually(t, "both are logged", func() bool {
		return strings.Contains(log.String(), service) && strings.Contains(log.String(), configMap)
	})
	for _, c := range []struct{ args, want string }{
		{"check " + path, service}, {"check " + path, configMap},
		{"check --admin " + address, service}, {"check --admin " + address, configMap},
		{"status --admin-address " + address, service}, {"status --admin-address " + address, configMap},
		{"explain -f " + path + " http://127.0.0.1:" + port + "/", service}, {"explain -f " + path + " http://127.0.0.1:" + port + "/secure", "Service default/secure"},
		{"explain --admin " + address + " http://127.0.0.1:" + port + "/", service},
	} {
		if _, out := run(strings.Fields(c.args)...); !strings.Contains(out, c.want) || strings.Contains(out, "does not exist") || strings.Contains(out, "did you mean") {
			t.Errorf("%s: no %q, or more\n%s", c.args, c.want, out)
		}
	}
	if strings.Contains(log.String(), "does not exist") {
		t.Errorf("the log\n%s", log)
	}
}
