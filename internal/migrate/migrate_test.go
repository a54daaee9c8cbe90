package migrate

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/migrate/migratetest"
	"github.com/moongate-dev/moongate/internal/source/manifest"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var options = Options{Class: "nginx", GatewayClass: "moongate", ControllerName: "moongate.dev/gateway-controller"}

// convert reads and converts, and fails on what cannot be read.
func convert(t *testing.T, text string) *Output {
	t.Helper()
	in := new(Input)
	in.Read("ingresses.yaml", []byte(text))
	if len(in.Problems) > 0 {
		t.Fatal(in.Problems)
	}
	return Convert(in, options)
}

// TestGolden compares objects and report of each case with testdata/<theme>.golden. What every report has is in everywhere.golden.
func TestGolden(t *testing.T) {
	files := map[string]*bytes.Buffer{"everywhere": {}}
	everywhere.Write(files["everywhere"]) //nolint:errcheck // never fails
	for _, c := range migratetest.Load(t, "testdata") {
		b := files[c.Theme]
		if b == nil {
			b = new(bytes.Buffer)
			files[c.Theme] = b
		}
		out := convert(t, string(c.Objects))
		b.WriteString("###### " + c.Name + "\n")
		b.Write(out.YAML())
		b.WriteString("###### report of " + c.Name + "\n")
		own := slices.DeleteFunc(slices.Clone(out.Report), func(e Entry) bool { return e.File == "" })
		own.Write(b) //nolint:errcheck // never fails
	}
	for _, theme := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join("testdata", theme+".golden")
		if *update {
			if err := os.WriteFile(path, files[theme].Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := files[theme].String(); got != string(want) {
			t.Errorf("%s differs from what migrate makes; run go test ./internal/migrate -update and read the diff%s", path, firstDifference(string(want), got))
		}
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "\nline " + itoa(i+1) + "\nwant " + w[i] + "\ngot  " + g[i]
		}
	}
	return ""
}

// TestNoAnnotationIsPassedOver: each annotation of the prefix has an entry, whatever it is and whatever it says.
func TestNoAnnotationIsPassedOver(t *testing.T) {
	values := []string{"true", "false", "1", "", "x", "http://auth.default.svc.cluster.local/x", "https://b.test$request_uri", "10.0.0.0/8", "cookie", "HTTPS", "nonsense $x"}
	names := slices.Sorted(maps.Keys(fixedVerdicts))
	names = append(names, documented...)
	for _, name := range names {
		for _, value := range values {
			out := convert(t, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  annotations:\n    nginx.ingress.kubernetes.io/"+name+": \""+value+"\"\n"+
				"spec:\n  ingressClassName: nginx\n  tls: [{hosts: [a.test], secretName: s}]\n  rules: [{host: a.test, http: {paths: [{path: /p, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}]}}]\n")
			if !slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Field == prefix+name }) {
				t.Errorf("%s: %q has no entry", name, value)
			}
		}
	}
}

// documented are the annotations in ingress-nginx's documentation that have no fixed verdict, and one that it does not have.
var documented = strings.Fields(`affinity affinity-canary-behavior affinity-mode allowlist-source-range app-root auth-always-set-cookie auth-cache-duration auth-cache-key auth-keepalive
	auth-keepalive-requests auth-keepalive-share-vars auth-keepalive-timeout auth-method auth-proxy-set-headers auth-realm auth-request-redirect auth-response-headers auth-secret auth-secret-type
	auth-signin auth-signin-redirect-param auth-snippet auth-tls-error-page auth-tls-match-cn auth-tls-pass-certificate-to-upstream auth-tls-secret auth-tls-verify-client auth-tls-verify-depth auth-type auth-url
	backend-protocol canary canary-by-cookie canary-by-header canary-by-header-pattern canary-by-header-value canary-weight canary-weight-total cors-allow-credentials cors-allow-headers cors-allow-methods
	cors-allow-origin cors-expose-headers cors-max-age denylist-source-range enable-cors enable-modsecurity enable-owasp-core-rules force-ssl-redirect from-to-www-redirect limit-allowlist
	limit-burst-multiplier limit-connections limit-rate limit-rate-after limit-rpm limit-rps limit-whitelist load-balance mirror-host mirror-request-body mirror-target permanent-redirect
	permanent-redirect-code preserve-trailing-slash proxy-body-size proxy-connect-timeout proxy-next-upstream proxy-next-upstream-timeout proxy-next-upstream-tries proxy-read-timeout
	proxy-send-timeout relative-redirects rewrite-target satisfy server-alias session-cookie-change-on-failure session-cookie-conditional-samesite-none session-cookie-domain session-cookie-expires
	session-cookie-max-age session-cookie-name session-cookie-path session-cookie-samesite session-cookie-secure ssl-redirect temporal-redirect temporal-redirect-code upstream-hash-by
	upstream-hash-by-subset upstream-hash-by-subset-size upstream-vhost use-port-in-redirects use-regex whitelist-source-range x-forwarded-prefix no-such-annotation`)

// TestOrderDoesNotCount: the same objects in another order give the same output.
func TestOrderDoesNotCount(t *testing.T) {
	for _, c := range migratetest.Load(t, "testdata") {
		in := new(Input)
		in.Read("ingresses.yaml", c.Objects)
		want := Convert(in, options)
		rand.Shuffle(len(in.ingresses), func(i, j int) { in.ingresses[i], in.ingresses[j] = in.ingresses[j], in.ingresses[i] })
		got := Convert(in, options)
		if !bytes.Equal(want.YAML(), got.YAML()) || !slices.Equal(want.Report, got.Report) {
			t.Errorf("%s/%s: the output depends on the order of the input", c.Theme, c.Name)
		}
	}
}

// TestProtectionIsNeverLeftOut: where a protection cannot be translated, no rule of the Ingress has a backend.
func TestProtectionIsNeverLeftOut(t *testing.T) {
	for _, annotations := range []string{`auth-type: basic`, `auth-type: digest`, `auth-tls-secret: default/ca`, `satisfy: any`, `enable-modsecurity: "true"`, `auth-url: https://auth.example.com/check`, `auth-url: $scheme`,
		`whitelist-source-range: nonsense`, `denylist-source-range: ""`, `backend-protocol: HTTPS`, `configuration-snippet: "add_header X-A b;\n  deny 192.0.2.0/24;"`, `server-snippet: "location /x { return 403; }"`, `auth-snippet: x, nginx.ingress.kubernetes.io/auth-url: "http://auth.default.svc/check"`} {
		out := convert(t, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, annotations: {nginx.ingress.kubernetes.io/"+annotations+"}}\n"+
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /p, pathType: Prefix, backend: {service: {name: secret, port: {number: 80}}}}]}}]}\n")
		if text := string(out.YAML()); strings.Contains(text, "name: secret") || !strings.Contains(text, "value: /p") {
			t.Errorf("%s: the rule must be there without its backend:\n%s", annotations, text)
		}
		if out.Report.Count(NotTranslated) < 2 { // one holds for every Ingress
			t.Errorf("%s: the report does not say that it is not translated", annotations)
		}
	}
}

// TestCredentials: what strconv.ParseBool takes for false allows no credentials, as in ingress-nginx; what it does not take counts as the default.
func TestCredentials(t *testing.T) {
	for value, want := range map[string]bool{"false": false, "False": false, "FALSE": false, "0": false, "f": false, "F": false, "true": true, "1": true, "no": true, "": true} {
		out := convert(t, ingressOf("a", "web", "a.test", "one", `nginx.ingress.kubernetes.io/enable-cors: "true", nginx.ingress.kubernetes.io/cors-allow-credentials: "`+value+`"`))
		if got := strings.Contains(string(out.YAML()), "allowCredentials: true"); got != want {
			t.Errorf("%q: credentials are allowed: %v, want %v", value, got, want)
		}
	}
}

// TestListsOfCORS: lists are what ingress-nginx makes of them, as far as the CORS filter can say it, and the filter is always valid.
func TestListsOfCORS(t *testing.T) {
	const methods, headers = "GET PUT POST DELETE PATCH OPTIONS", "DNT Keep-Alive User-Agent X-Requested-With If-Modified-Since Cache-Control Content-Type Range Authorization"
	for _, c := range []struct {
		name, value, field, want string
		outcome                  Outcome
	}{
		{"cors-allow-methods", "PUT, GET", "allowMethods", "PUT GET", Translated},
		{"cors-allow-methods", "get, post", "allowMethods", "GET POST", Approximated},
		{"cors-allow-methods", "GET POST", "allowMethods", "GET POST", Translated},
		{"cors-allow-methods", "GET, PUT, GET", "allowMethods", "GET PUT", Translated},
		{"cors-allow-methods", "GET, PROPFIND", "allowMethods", "GET", Approximated},
		{"cors-allow-methods", "PROPFIND", "allowMethods", "", Approximated},
		{"cors-allow-methods", "", "allowMethods", methods, Translated},
		{"cors-allow-methods", "GET; PUT", "allowMethods", methods, Translated},
		{"cors-allow-methods", "*", "allowMethods", methods, Translated},
		{"cors-allow-methods", "*, GET", "allowMethods", methods, Translated},
		{"cors-allow-headers", "X-A X-B,X-A,\tx-b", "allowHeaders", "X-A X-B", Translated},
		{"cors-allow-headers", "X-A,*", "allowHeaders", headers, Translated},
		{"cors-allow-headers", "", "allowHeaders", headers, Translated},
		{"cors-expose-headers", "X-A, X-A, *", "exposeHeaders", "X-A *", Translated},
		{"cors-expose-headers", "X-A;", "exposeHeaders", "", Translated},
		{"cors-allow-origin", "https://a.test, https://A.test,http://b.test:81", "allowOrigins", "https://a.test http://b.test:81", Translated},
		{"cors-allow-origin", "https://a.test,https://b.test:99999", "allowOrigins", "https://a.test", NotTranslated},
		{"cors-max-age", "99999999999", "maxAge", "2147483647", Approximated},
	} {
		out := convert(t, ingressOf("a", "web", "a.test", "one", `nginx.ingress.kubernetes.io/enable-cors: "true", nginx.ingress.kubernetes.io/`+c.name+`: "`+c.value+`"`))
		_, got, _ := strings.Cut(string(out.YAML()), " "+c.field+":")
		if first, rest, _ := strings.Cut(got, "\n"); first == "" {
			got = ""
			for line := range strings.Lines(rest) {
				item, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
				if !ok {
					break
				}
				got += " " + strings.Trim(item, `'"`)
			}
		} else {
			got = first
		}
		if got = strings.TrimSpace(got); got != c.want || len(invalid(out)) > 0 || !strings.Contains(string(out.YAML()), "name: one\n      port: 80") {
			t.Errorf("%s: %q: %s is %q, want %q; %v", c.name, c.value, c.field, got, c.want, invalid(out))
		}
		if e := entry(out, c.name); !slices.ContainsFunc(e, func(e Entry) bool { return e.Outcome == c.outcome }) {
			t.Errorf("%s: %q: the entries are %v, want one that is %s", c.name, c.value, e, c.outcome)
		}
	}
}

// TestTargetsOfRedirects: a redirect leads where it led, byte for byte or as the report says, or the paths are answered 500.
func TestTargetsOfRedirects(t *testing.T) {
	for _, c := range []struct {
		target, host, path string
		normal             bool // Location has another form of the path, and the report says so
	}{
		{"https://b.test/a%2Fb", "b.test", "/a%2Fb", false},
		{"https://b.test/Getting%20Started", "b.test", "/Getting%20Started", false},
		{"https://b.test/100%25", "b.test", "/100%25", false},
		{"https://b.test/a%3Bb;c", "b.test", "/a%3Bb;c", false},
		{"https://b.test/a%2fb", "b.test", "/a%2fb", true},
		{"https://b.test/%2e%2e/x%41", "b.test", "/%2e%2e/x%41", true},
		{"https://b.test/é", "b.test", "/%C3%A9", true},
		{"https://New.B.Test./x", "new.b.test", "/x", false},
		{"https://b.test$request_uri", "b.test", "", false},
		{"https://a_b.test/x", "", "", false},
		{"https://[::1]/x", "", "", false},
		{"https://b.test:99999/x", "", "", false},
		{"https://b.test:0/x", "", "", false},
		{"ftp://b.test/x", "", "", false},
		{"https://b.test/%00", "", "", false},
	} {
		out := convert(t, beside("/admin", `nginx.ingress.kubernetes.io/permanent-redirect: "`+c.target+`"`))
		text := string(out.YAML())
		if found := invalid(out); len(found) > 0 || strings.Contains(text, "name: secret") {
			t.Errorf("%s: %v in\n%s", c.target, found, text)
		}
		e := entry(out, "permanent-redirect")
		if c.host == "" {
			if strings.Contains(text, "RequestRedirect") || len(e) != 1 || e[0].Outcome != NotTranslated {
				t.Errorf("%s: there must be no redirect, and the report must say so: %v\n%s", c.target, e, text)
			}
			continue
		}
		if !strings.Contains(text, "hostname: "+c.host+"\n") || c.path == "" != !strings.Contains(text, "replaceFullPath") || c.path != "" && !strings.Contains(text, "replaceFullPath: "+c.path+"\n") {
			t.Errorf("%s: want a redirect to %s%s:\n%s", c.target, c.host, c.path, text)
		}
		if said := slices.ContainsFunc(e, func(e Entry) bool { return strings.Contains(e.Message, "normal form") }); said != c.normal {
			t.Errorf("%s: the report speaks of another form: %v, want %v", c.target, said, c.normal)
		}
	}
}

// TestPathsThatCannotBeSent: neither a rewrite nor a redirect of / has one, and what they are for is answered 500.
func TestPathsThatCannotBeSent(t *testing.T) {
	for _, target := range []string{"/x y", "/x y/$1"} {
		out := convert(t, beside("/admin/(.*)", `nginx.ingress.kubernetes.io/rewrite-target: "`+target+`"`))
		if e := entry(out, "rewrite-target"); strings.Contains(string(out.YAML()), "name: secret") || len(e) != 1 || e[0].Outcome != NotTranslated {
			t.Errorf("%s: %v\n%s", target, e, out.YAML())
		}
	}
	out := convert(t, beside("/admin", `nginx.ingress.kubernetes.io/app-root: "/a b"`))
	if e := entry(out, "app-root"); strings.Contains(string(out.YAML()), "RequestRedirect") || !strings.Contains(string(out.YAML()), "type: Exact\n        value: /\n  - name") || len(e) != 1 || e[0].Outcome != NotTranslated {
		t.Errorf("%v\n%s", e, out.YAML())
	}
}

// TestTrustedProxies: where X-Forwarded-For says who the client is, the proxies that it is believed of are those of proxy-real-ip-cidr; else lists of addresses say by what they go.
func TestTrustedProxies(t *testing.T) {
	for _, c := range []struct {
		data, trusted string // "" is none
		told          bool   // the list's own entry says that it goes by the connection
	}{
		{`use-forwarded-headers: "true", proxy-real-ip-cidr: "192.0.2.0/24, 2001:db8::1"`, "  trustedProxies:\n  - 192.0.2.0/24\n  - 2001:db8::1/128\n", false},
		{`enable-real-ip: "True", proxy-real-ip-cidr: 192.0.2.0/24`, "  trustedProxies:\n  - 192.0.2.0/24\n", false},
		{`use-forwarded-headers: "true"`, "", true},
		{`use-forwarded-headers: "true", proxy-real-ip-cidr: 0.0.0.0/0`, "", true},
		{`use-forwarded-headers: "true", proxy-real-ip-cidr: proxies.test`, "", true},
		{`use-forwarded-headers: "true", forwarded-for-header: X-Client, proxy-real-ip-cidr: 192.0.2.0/24`, "", true},
		{`use-forwarded-headers: "false", proxy-real-ip-cidr: 192.0.2.0/24`, "", false},
		{`proxy-real-ip-cidr: 192.0.2.0/24`, "", false},
	} {
		out := convert(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: ingress-nginx}\ndata: {"+c.data+"}\n---\n"+beside("/admin", "x: y"))
		text := string(out.YAML())
		if found := invalid(out); len(found) > 0 || strings.Contains(text, "trustedProxies") != (c.trusted != "") || !strings.Contains(text, c.trusted) {
			t.Errorf("%s: %v in\n%s", c.data, found, text)
		}
		if told := slices.ContainsFunc(entry(out, "whitelist-source-range"), func(e Entry) bool {
			return e.Outcome == NotTranslated && strings.Contains(e.Message, "by the address of their connection") && strings.Contains(e.Remedy, "trustedProxies")
		}); told != c.told {
			t.Errorf("%s: the entry of the list says by what it goes: %v, want %v: %v", c.data, told, c.told, out.Report)
		}
	}
}

// TestWithheldRulesKeepTheRest: where one annotation leaves rules without backends, all else that the Ingress asks for is there, so that it holds once somebody adds them.
func TestWithheldRulesKeepTheRest(t *testing.T) {
	for _, withheld := range []string{`auth-type: basic`, `auth-tls-secret: default/ca`, `satisfy: any`, `enable-modsecurity: "true"`, `auth-url: https://auth.example.com/check`, `denylist-source-range: nonsense`, `backend-protocol: HTTPS`,
		`configuration-snippet: "deny all;"`, `server-snippet: "deny all;"`, `use-regex: "true"`} {
		out := convert(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, annotations: {nginx.ingress.kubernetes.io/`+withheld+`, nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8,
  nginx.ingress.kubernetes.io/limit-rps: "5", nginx.ingress.kubernetes.io/enable-cors: "true", nginx.ingress.kubernetes.io/affinity: cookie, nginx.ingress.kubernetes.io/upstream-vhost: b.test, nginx.ingress.kubernetes.io/mirror-target: "http://copies.default.svc$request_uri"}},
  spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: "/p(?!q)", pathType: ImplementationSpecific, backend: {service: {name: secret, port: {number: 80}}}}]}}]}}`)
		text := string(out.YAML())
		for _, want := range []string{"type: CORS", "type: RequestMirror", "hostname: b.test", "sessionPersistence:", "kind: BackendTrafficPolicy", "value: 10.0.0.0/8", "requests: 5\n"} {
			if !strings.Contains(text, want) || strings.Contains(text, "name: secret") {
				t.Errorf("%s: the rule must be there without its backend, and with %s:\n%s", withheld, want, text)
			}
		}
	}
}

// TestPolicyOfRules: on a host with regular expressions, whose Ingresses share a route, a policy is for each rule of its Ingress, and for no other.
func TestPolicyOfRules(t *testing.T) {
	out := convert(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: closed, annotations: {nginx.ingress.kubernetes.io/use-regex: "true", nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8}},
  spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /aaaaa, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}, {path: /bbb, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}},
    {path: /c, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}]}}]}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: open}, spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /dddd, pathType: Prefix, backend: {service: {name: two, port: {number: 80}}}}]}}]}}
`)
	var got []string
	for line := range strings.Lines(string(out.YAML())) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "sectionName: rule-"); ok {
			got = append(got, name)
		}
	}
	if want := []string{"1", "3", "4"}; !slices.Equal(got, want) {
		t.Errorf("the policy is for the rules %v, want %v:\n%s", got, want, out.YAML())
	}
}

// TestAliases: objects that stand for others are read, and lists that never end are not.
func TestAliases(t *testing.T) {
	in := new(Input)
	in.Read("alias.yaml", []byte(`apiVersion: v1
kind: List
shop: &shop
  apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: shop}
  spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}
items: [*shop]
`))
	if len(in.ingresses) != 1 || len(in.Problems) != 0 {
		t.Errorf("%d Ingresses, %v", len(in.ingresses), in.Problems)
	}
	list := func(name, items string) string {
		return fmt.Sprintf("%s: &%s\n  apiVersion: v1\n  kind: List\n  items: [%s]\n", name, name, items)
	}
	wide := ""
	last := "{kind: None}"
	for i := range 8 {
		name := fmt.Sprintf("l%d", i)
		wide += list(name, strings.Repeat(last+", ", 9)+last)
		last = "*" + name
	}
	for what, text := range map[string]string{
		"itself": "apiVersion: v1\nkind: List\nitems: &a\n- {apiVersion: v1, kind: List, items: *a}\n",
		"many":   wide + "apiVersion: v1\nkind: List\nitems: [" + last + "]\n",
	} {
		in := new(Input)
		in.Read("list.yaml", []byte(text))
		if len(in.Problems) != 1 || !strings.Contains(in.Problems[0].Message, "in lists, or lists more than 10 deep") {
			t.Errorf("%s: %v", what, in.Problems)
		}
	}
}

// TestInput: what is read, and what is said of the rest.
func TestInput(t *testing.T) {
	in := new(Input)
	in.Read("list.yaml", []byte(`apiVersion: v1
kind: List
items:
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: one}
  spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: other}}
---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: old}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: wrong}
spec: {ruls: []}
---
{
---
# Envoy Gateway's
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: sec}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  cors: {allowOrigins: ["https://a.test"]}
  jwt: {providers: []}
  newThing: {}
`))
	if in.Ingresses() != 1 || in.Policies() != 1 {
		t.Errorf("%d Ingresses and %d policies were read, want 1 and 1", in.Ingresses(), in.Policies())
	}
	var lines []string
	for _, p := range in.Problems {
		lines = append(lines, p.String())
	}
	for i, want := range []string{"list.yaml:10: apiVersion: extensions/v1beta1 of Ingress is not read", "list.yaml:17: Ingress default/wrong: is no valid Ingress: unknown field \"spec.ruls\"", "list.yaml:18: is not YAML"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("the problems are\n%s\nwant one that begins with %q", strings.Join(lines, "\n"), want)
		}
	}
	out := Convert(in, options)
	for _, want := range []string{"list.yaml:27: SecurityPolicy default/sec: spec.cors: not translated: maps to a CORS filter", "list.yaml:28: SecurityPolicy default/sec: spec.jwt: not translated: has no counterpart",
		"spec.newThing: not translated: has no counterpart that is known", "list.yaml:4: Ingress default/one: spec.ingressClassName: not translated: there is no class, and ingress-nginx serves Ingresses without a class with --watch-ingress-without-class only, or where their IngressClass is the default one when they are created; give --watch-ingress-without-class"} {
		if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.Contains(e.String(), want) }) {
			t.Errorf("the report has nothing of %q:\n%v", want, out.Report)
		}
	}
}

// TestHostInUpperCase: a host is the same in any case, and does not make the Gateway invalid.
func TestHostInUpperCase(t *testing.T) {
	out := convert(t, ingressOf("a", "one", "A.Test", "one", "")+ingressOf("a", "two", "a.test", "two", ""))
	if found := invalid(out); len(found) > 0 || strings.Count(string(out.YAML()), "hostname: a.test\n") != 1 {
		t.Errorf("%v in\n%s", found, out.YAML())
	}
}

// TestSizeThatIsNone: a size that no number holds counts as the default, and does not become another.
func TestSizeThatIsNone(t *testing.T) {
	for _, size := range []string{"99999999999g", "99999999999999999999", "many"} {
		out := convert(t, ingressOf("a", "one", "a.test", "one", `nginx.ingress.kubernetes.io/proxy-body-size: "`+size+`"`))
		if e := entry(out, "proxy-body-size"); len(e) == 0 || e[0].Outcome != NotTranslated || strings.Count(string(out.YAML()), "maxRequestBodyBytes") != 1 {
			t.Errorf("%s: %v\n%s", size, e, out.YAML())
		}
	}
}

// TestTwice: an Ingress that is in the input twice is a problem, not two.
func TestTwice(t *testing.T) {
	in := new(Input)
	const ing = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {ingressClassName: nginx}\n"
	in.Read("a.yaml", []byte(ing))
	in.Read("b.yaml", []byte("\n"+ing))
	if in.Ingresses() != 1 || len(in.Problems) != 1 || in.Problems[0].String() != "b.yaml:2: Ingress default/web is in a.yaml:1 already; give each Ingress once" {
		t.Errorf("%d Ingresses, and %v", in.Ingresses(), in.Problems)
	}
}

// TestManyHosts: a Gateway has 64 listeners at most, and each host that is left out is reported.
func TestManyHosts(t *testing.T) {
	var b strings.Builder
	for n := range maxListeners + 6 {
		b.WriteString("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i" + itoa(n) + "}\nspec: {ingressClassName: nginx, rules: [{host: h" + itoa(n) +
			".test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}]}}]}\n")
	}
	out := convert(t, b.String())
	listeners, left := strings.Count(string(out.YAML()), "protocol: HTTP\n"), 0
	for _, e := range out.Report {
		if strings.Contains(e.Message, "is left out") && e.Outcome == NotTranslated {
			left++
		}
	}
	if listeners != maxListeners || left != 6 || strings.Count(string(out.YAML()), "kind: HTTPRoute\nmetadata") != maxListeners {
		t.Errorf("%d listeners, %d hosts left out, and the routes\n%s", listeners, left, out.YAML())
	}
}

// ingressOf is an Ingress of a namespace for one host, with annotations as a YAML flow mapping has them.
func ingressOf(namespace, name, host, service, annotations string) string {
	return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: " + name + ", namespace: " + namespace + ", annotations: {" + annotations + "}}\nspec: {ingressClassName: nginx, rules: [{host: " + host +
		", http: {paths: [{path: /" + service + ", pathType: Prefix, backend: {service: {name: " + service + ", port: {number: 80}}}}]}}]}\n"
}

// TestGrantsAreNarrow: grants name what is referred to, and have no more items than an API server takes.
func TestGrantsAreNarrow(t *testing.T) {
	text := ingressOf("a", "regular", "a.test", "own", `nginx.ingress.kubernetes.io/use-regex: "true", nginx.ingress.kubernetes.io/server-alias: zz`)
	text = strings.Replace(text, "{name: regular", "{name: regular, creationTimestamp: \"2026-01-01T00:00:00Z\"", 1) // the route of the host is in its namespace
	for n := range maxGranted + 1 {
		ing := ingressOf("b", "i"+itoa(n), "a.test", "s"+itoa(n), "")
		text += strings.Replace(ing, "{name: i", "{creationTimestamp: \"2026-01-02T00:00:00Z\", name: i", 1)
	}
	var grants []string
	for doc := range strings.SplitSeq(string(convert(t, text).YAML()), "---\n") {
		if strings.Contains(doc, "kind: ReferenceGrant") {
			grants = append(grants, doc)
		}
	}
	if len(grants) != 2 || strings.Count(grants[0], "kind: Service\n    name: s") != maxGranted || !strings.Contains(grants[1], "name: services-for-httproutes-of-a-2\n") || strings.Count(grants[1], "kind: Service\n    name: s") != 1 {
		t.Errorf("the grants are\n%s", strings.Join(grants, "\n"))
	}
}

// TestLimitsOfAPIServers: names are unique and not too long, and lists have no more items than an API server takes.
func TestLimitsOfAPIServers(t *testing.T) {
	aliases := make([]string, 40)
	for n := range aliases {
		aliases[n] = "n" + itoa(n) + ".test"
	}
	text := ingressOf("a", "one", "a.test", "own", `nginx.ingress.kubernetes.io/proxy-body-size: 2m, nginx.ingress.kubernetes.io/server-alias: "`+strings.Join(aliases, ",")+`"`)
	for n := range 30 {
		text += ingressOf("a", "i"+itoa(n), "b"+itoa(n)+".test", "own", `nginx.ingress.kubernetes.io/proxy-body-size: 2m`)
	}
	out := convert(t, text)
	for doc := range strings.SplitSeq(string(out.YAML()), "---\n") {
		_, hosts, _ := strings.Cut(doc, "\n  hostnames:\n")
		hosts, _, _ = strings.Cut(hosts, "\n  rules:")
		if n := strings.Count(hosts+"\n", "\n"); strings.Contains(doc, "kind: HTTPRoute") && n > maxHostnames {
			t.Errorf("a route has %d hostnames:\n%s", n, doc)
		}
		if n := strings.Count(doc, "\n  - name: "); strings.Contains(doc, "kind: GatewayParameters") && n != maxLimited {
			t.Errorf("GatewayParameters have %d listeners:\n%s", n, doc)
		}
	}
	if !slices.ContainsFunc(out.Report, func(e Entry) bool {
		return e.Outcome == NotTranslated && strings.Contains(e.Message, "bodies may have 1 MiB")
	}) {
		t.Errorf("the report has nothing of the listener without a limit: %v", out.Report)
	}
	long, other := strings.Repeat("n", 253), strings.Repeat("n", 252)+"m"
	if a, b := shorten(long), shorten(other); a == b || len(a) > maxName-4 || len(b) > maxName-4 || shorten("short") != "short" {
		t.Errorf("shortened names are %s and %s", a, b)
	}
}

// TestAge: what the older Ingress decides is reported where the input does not say which is older.
func TestAge(t *testing.T) {
	second := strings.ReplaceAll(ingressOf("a", "two", "a.test", "own", ""), "name: own", "name: other")
	has := func(text string) bool {
		return slices.ContainsFunc(convert(t, text).Report, func(e Entry) bool {
			return e.Object == "Ingress a/one" && e.Field == "metadata.creationTimestamp" && e.Outcome == Approximated && strings.Contains(e.Message, "the backend of /own is that of the older Ingress")
		})
	}
	text := ingressOf("a", "one", "a.test", "own", "") + second
	if !has(text) {
		t.Error("the report does not say that age decides")
	}
	if has(strings.ReplaceAll(text, "namespace: a", "namespace: a, creationTimestamp: \"2026-01-01T00:00:00Z\"")) {
		t.Error("the report says that age is unknown, though the Ingresses have one")
	}
}

// TestRelaxed: what RE2 cannot read is replaced by what matches more.
func TestRelaxed(t *testing.T) {
	for pattern, want := range map[string]string{
		`/(?!bar)[a-z]+`: `/(?:)[a-z]+`, `/a(?<=x(y)[)])b`: `/a(?:)b`, `/(a|b)/\1`: `/(a|b)/(?:.*)`, `/[(?!]\(?=`: `/[(?!]\(?=`, `/a(?=b`: `/a(?=b`, `/\d+`: `/\d+`,
	} {
		if got := relaxed(pattern); got != want {
			t.Errorf("relaxed(%q) = %q, want %q", pattern, got, want)
		}
	}
	for pattern, want := range map[string]string{`/api/(?!x)`: "/api/", `/ab?(?!x)`: "/a", `^/a|b`: "", `/a\.b`: "/a", `/x`: "/x", `/ab{2}`: "/a"} {
		if got := beginning(pattern); got != want {
			t.Errorf("beginning(%q) = %q, want %q", pattern, got, want)
		}
	}
}

// TestConfigMap: what the controller's ConfigMap says of all Ingresses is translated, and each of its keys has an entry.
func TestConfigMap(t *testing.T) {
	const ing = "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /p, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}]}}]}\n"
	keys := slices.Concat(slices.Sorted(maps.Keys(configVerdicts)), slices.Sorted(maps.Keys(annotationDefaults)), configWithoutEffect, []string{"hsts", "hsts-max-age", "hsts-include-subdomains", "hsts-preload", "http-redirect-code", "no-auth-locations",
		"no-tls-redirect-locations", "block-cidrs", "ssl-reject-handshake", "no-such-key"})
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: ingress-nginx}\ndata:\n"
	for _, key := range keys {
		text += "  " + key + ": \"10.0.0.0/8\"\n"
	}
	out := convert(t, text+ing)
	for n, key := range keys {
		if !slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Object == "ConfigMap ingress-nginx/ingress-nginx-controller" && e.Field == key && e.Line == n+5 && e.Message != ""
		}) {
			t.Errorf("%s has no entry in line %d", key, n+5)
		}
	}
	for _, c := range []struct{ data, want string }{
		{`enable-modsecurity: "true"`, "the web application firewall cannot be translated"},
		{`whitelist-source-range: "nonsense"`, "ingresses.yaml:5: Ingress default/web: ConfigMap ingress-nginx/ingress-nginx-controller whitelist-source-range: not translated: the range nonsense"},
		{`no-auth-locations: /p`, "these paths have no authentication"},
		{`block-cidrs: 10.0.0.0/8`, "ConfigMap ingress-nginx/ingress-nginx-controller block-cidrs: approximated: addresses are refused"},
	} {
		out := convert(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: ingress-nginx}\ndata:\n  "+c.data+"\n"+ing)
		if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.Contains(e.String(), c.want) }) {
			t.Errorf("%s: the report has nothing of %q: %v", c.data, c.want, out.Report)
		}
	}
	in := new(Input)
	in.Read("ingresses.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: x}\ndata: {proxy-body-size: 2m}\n"+ing))
	named := options
	named.ConfigMap = "x/mine"
	out = Convert(in, named)
	if !strings.Contains(string(out.YAML()), "maxRequestBodyBytes: 2097152") {
		t.Errorf("with --configmap x/mine: %v\n%s", out.Report, out.YAML())
	}
	named.ConfigMap = "x/none"
	if out = Convert(in, named); strings.Contains(string(out.YAML()), "2097152") || !slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Object == "ConfigMap x/none" && e.Outcome == NotTranslated }) {
		t.Errorf("with --configmap x/none: %v", out.Report)
	}
}

// TestPlaces: entries say where an annotation stands, in lists and behind other documents too.
func TestPlaces(t *testing.T) {
	out := convert(t, "# comment\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  annotations:\n    other: x\n    nginx.ingress.kubernetes.io/server-snippet: x\n"+
		"spec: {ingressClassName: nginx, defaultBackend: {service: {name: one, port: {number: 80}}}}\n")
	want := manifest.Position{File: "ingresses.yaml", Line: 9}
	if !slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Position == want && e.Field == prefix+"server-snippet" }) {
		t.Errorf("no entry at %v: %v", want, out.Report)
	}
}

// TestServerSnippet: a server-snippet that may refuse requests is for all paths of its hosts, also those of other Ingresses; one that cannot is not.
func TestServerSnippet(t *testing.T) {
	one := func(name, path, snippet string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: " + name + ", annotations: {nginx.ingress.kubernetes.io/server-snippet: \"" + snippet + "\"}}\n" +
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: " + path + ", pathType: Prefix, backend: {service: {name: " + name + ", port: {number: 80}}}}]}}]}\n"
	}
	for snippet, open := range map[string]bool{"location /actuator { deny all; }": false, "add_header Allow GET;": true, "# deny all;": true} {
		text := string(convert(t, one("first", "/a", "# nothing")+one("second", "/b", snippet)).YAML())
		want := 0
		if open {
			want = 2
		}
		if n := strings.Count(text, "backendRefs:\n"); n != want {
			t.Errorf("%q: %d rules have backends, want %d:\n%s", snippet, n, want, text)
		}
	}
}

// TestSnippets: where nginx may refuse something by a snippet, or where that is not known, nothing is open.
func TestSnippets(t *testing.T) {
	for snippet, refuses := range map[string]bool{
		"":         false,
		"# deny x": false,
		"add_header Allow GET;\n  gzip on; # deny all;":                                           false,
		`map $host $x { hostnames; default 0; "deny" 1; } log_format a '$remote_addr; deny all';`: false,
		"proxy_set_header X ${host}a;":                                                            false,
		"more_set_headers 'X: {deny all;}';":                                                      false,
		"deny 192.0.2.0/24;":                                                                      true,
		"\"deny\" all;":                                                                           true,
		"'deny' all;":                                                                             true,
		"d\\eny all;":                                                                             true,
		"gzip on; deny all;":                                                                      true,
		"add_header X a#b; deny all;":                                                             true,
		"gzip":                                                                                    true,
		"rewrite ^ /403 last;":                                                                    true,
		"if ($a) { rewrite ^ /x last; }":                                                          true,
		"location /a { proxy_pass http://b; }":                                                    true,
		"map $host $x { a b; }}":                                                                  true,
		"map $host $x { a { deny all; } }":                                                        true,
		"} location /x { gzip on; ":                                                               true,
		"set $proxy_upstream_name x;":                                                             true,
		"ssl_client_hello_by_lua_block { ngx.exit(ngx.ERROR) }":                                   true,
		"preread_by_lua_block { return }":                                                         true,
		"server { listen 1; }":                                                                    true,
		"include /etc/x;":                                                                         true,
		"no_such_directive x;":                                                                    true,
		";":                                                                                       true,
		"types;":                                                                                  true,
	} {
		data := configOf("x", "ingress-nginx-controller", strings.Join([]string{"%s: ", "\"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", "\\n").Replace(snippet) + "\""}, ""))
		for _, key := range []string{"http-snippet", "server-snippet", "location-snippet"} {
			out := convert(t, strings.Replace(data, "%s", key, 1)+ingressOf("a", "web", "a.test", "own", ""))
			if strings.Contains(string(out.YAML()), "    - name: own\n") == refuses {
				t.Errorf("%s: %q: the path must be closed: %v", key, snippet, refuses)
			}
			want := "requests reach backends"
			if refuses {
				want = "may refuse requests"
			}
			if !slices.ContainsFunc(out.Report, func(e Entry) bool {
				return e.Field == key && e.Outcome == NotTranslated && strings.Contains(e.Message, want)
			}) {
				t.Errorf("%s: %q: the report has nothing of %q", key, snippet, want)
			}
		}
		if got := mayRefuse(snippet, streamSnippet); refuses && !got {
			t.Errorf("stream-snippet: %q may refuse nothing", snippet)
		}
	}
	ports := configOf("x", "ports", `"5432": "db/postgres:5432"`)
	controller := deployment("x", "controller", official+"args: [/nginx-ingress-controller, --configmap=x/config, --tcp-services-configmap=x/ports]")
	for input, open := range map[string]bool{
		configOf("x", "config", "stream-snippet: \"preread_by_lua_block { ngx.exit(403) }\"") + ingressOf("a", "web", "a.test", "own", ""): false,
		configOf("x", "config", "stream-snippet: proxy_timeout 1h;") + ingressOf("a", "web", "a.test", "own", ""):                          true,
		configOf("x", "config", "main-snippet: \"stream { deny all; }\"") + ingressOf("a", "web", "a.test", "own", ""):                     false,
		configOf("x", "config", "main-snippet: worker_priority 1;") + ingressOf("a", "web", "a.test", "own", ""):                           true,
		configOf("x", "config", "") + ingressOf("a", "web", "a.test", "own", prefix+"stream-snippet: deny all;"):                           false,
	} {
		if text := string(convert(t, controller+ports+input).YAML()); strings.Contains(text, "kind: TCPRoute") != open {
			t.Errorf("%s: the port must be open: %v", input, open)
		}
	}
}

// TestCommentsAreComments: what others have chosen does not leave the comment that it stands in.
func TestCommentsAreComments(t *testing.T) {
	for _, end := range []string{"\\n", "\\r", "\\u0085", "\\u2028", "\\u2029"} {
		out := convert(t, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, annotations: {nginx.ingress.kubernetes.io/auth-type: \"x"+end+"apiVersion: v1"+end+"kind: Evil"+end+"---"+end+"#\"}}\n"+
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /p, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}\n")
		d := yaml.NewDecoder(bytes.NewReader(out.YAML()))
		for {
			var object map[string]any
			if err := d.Decode(&object); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", end, err)
			}
			if object["kind"] == "Evil" {
				t.Errorf("%s ends a comment:\n%s", end, out.YAML())
			}
		}
		for _, e := range out.Report {
			if strings.ContainsAny(e.String(), "\n\r\u0085\u2028\u2029") {
				t.Errorf("%s stays in the report: %q", end, e)
			}
		}
	}
}

// TestNamespaces: a namespace is a name, not a path, and none is taken for what has none.
func TestNamespaces(t *testing.T) {
	ingress := func(namespace string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, namespace: " + namespace + "}\n" +
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /p, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}\n"
	}
	in := new(Input)
	in.Read("in.yaml", []byte(ingress("../../x")+ingress("cluster")))
	if len(in.Problems) != 1 || in.Ingresses() != 1 || in.Problems[0].Field != "metadata.namespace" {
		t.Fatalf("%d Ingresses, problems %v", in.Ingresses(), in.Problems)
	}
	files := Convert(in, options).Files()
	if _, is := files["namespace-cluster.yaml"]; !is || strings.Contains(string(files["cluster.yaml"]), "namespace: cluster") {
		t.Errorf("files %v", slices.Sorted(maps.Keys(files)))
	}
}

// TestServingCanary: paths of its own that a canary has are not open where the ConfigMap keeps requests from all backends.
func TestServingCanary(t *testing.T) {
	ingress := func(name, created, path, canary string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: " + name + ", creationTimestamp: \"" + created + "\", annotations: {" + canary + "}}\n" +
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: " + path + ", pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}\n"
	}
	ingresses := ingress("old", "2026-01-01T00:00:00Z", "/a", "") + ingress("new", "2026-02-01T00:00:00Z", "/b", `nginx.ingress.kubernetes.io/canary: "true"`)
	config := func(data string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: ingress-nginx-controller, namespace: ingress-nginx}\ndata: {" + data + "}\n"
	}
	for data, want := range map[string]int{`use-http2: "true"`: 2, "block-cidrs: 192.0.2.0/24": 1, `global-auth-url: "http://auth.default.svc.cluster.local/check"`: 1} {
		out := convert(t, ingresses+config(data))
		if n := strings.Count(string(out.YAML()), "backendRefs:\n"); n != want {
			t.Errorf("%s: %d rules have backends, want %d:\n%s", data, n, want, out.YAML())
		}
	}
}

// TestEncodedPaths: on a host with regular expressions paths are matched as they are forwarded, with escapes, also where the path is protected.
func TestEncodedPaths(t *testing.T) {
	for path, want := range map[string]string{"/über": "(?i)/(?:%C3%BC)ber.*", "/a b": "(?i)/a(?:%20)b.*", "/a[ü]c": "(?i)/a.*", `/a\\ b`: "(?i)/a(?:%20)b.*", `/\\\\\\[ü`: `(?i)/\\\[(?:%C3%BC).*`, "/a|b": "(?is).*(?:^/a|b).*"} {
		out := string(convert(t, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, annotations: {nginx.ingress.kubernetes.io/use-regex: \"true\", nginx.ingress.kubernetes.io/auth-type: basic}}\n"+
			"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: \""+path+"\", pathType: ImplementationSpecific, backend: {service: {name: s, port: {number: 80}}}}]}}]}\n").YAML())
		if !strings.Contains(out, "value: "+want+"\n") && !strings.Contains(out, "value: '"+want+"'\n") && !strings.Contains(out, "value: \""+want+"\"\n") {
			t.Errorf("%s: %s is not in\n%s", path, want, out)
		}
	}
}

// TestPorts: ports for TCP and UDP become listeners and routes in the namespace of their Service, and each has an entry.
func TestPorts(t *testing.T) {
	const input = `apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: ingress-nginx}
spec: {template: {spec: {containers: [{name: controller, image: registry.k8s.io/ingress-nginx/controller:v1.14.0, args: [/nginx-ingress-controller, --tcp-services-configmap=$(POD_NAMESPACE)/ports, --udp-services-configmap=$(POD_NAMESPACE)/datagrams]}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ports, namespace: ingress-nginx}
data:
  "5432": db/postgres:5432
  "5433": db/postgres:sql
  "5434": db/postgres:5432:PROXY
  "5435": nowhere
  "5436": db/postgres:unknown
  "80": db/postgres:5432
---
apiVersion: v1
kind: ConfigMap
metadata: {name: datagrams, namespace: ingress-nginx}
data:
  "53": a/dns:53
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tcp-services, namespace: someone}
data:
  "9": someone/else:9
---
apiVersion: v1
kind: Service
metadata: {name: postgres, namespace: db}
spec: {ports: [{name: sql, port: 5432}]}
`
	out := convert(t, input+ingressOf("a", "web", "a.test", "own", ""))
	text := string(out.YAML())
	for _, want := range []string{
		"  - name: tcp-5433\n    port: 5433\n    protocol: TCP\n    allowedRoutes:\n      namespaces:\n        from: Selector\n        selector:\n          matchLabels:\n            kubernetes.io/metadata.name: db\n",
		"kind: TCPRoute\nmetadata:\n  name: postgres-tcp-5433\n  namespace: db\nspec:\n  parentRefs:\n  - name: ingress\n    namespace: a\n    sectionName: tcp-5433\n  rules:\n  - backendRefs:\n    - name: postgres\n      port: 5432\n",
		"  - name: udp-53\n    port: 53\n    protocol: UDP\n",
		"kind: UDPRoute\nmetadata:\n  name: dns-udp-53\n  namespace: a\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "kind: TCPRoute"); n != 2 {
		t.Errorf("there are %d TCPRoutes, want 2", n)
	}
	for _, want := range []string{
		"ingresses.yaml:10: ConfigMap ingress-nginx/ports: 5432: approximated: a listener with a TCPRoute",
		"ingresses.yaml:12: ConfigMap ingress-nginx/ports: 5434: not translated: the PROXY protocol",
		"ingresses.yaml:13: ConfigMap ingress-nginx/ports: 5435: not translated: is not a port with namespace/service:port",
		"ingresses.yaml:14: ConfigMap ingress-nginx/ports: 5436: not translated: the number of port unknown",
		"ingresses.yaml:15: ConfigMap ingress-nginx/ports: 80: not translated: the port is one that ingress-nginx reserves for itself, by --http-port",
		"ingresses.yaml:21: ConfigMap ingress-nginx/datagrams: 53: approximated: a listener with a UDPRoute",
		"ingresses.yaml:4: Deployment ingress-nginx/controller: --tcp-services-configmap: translated",
	} {
		if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.HasPrefix(e.String(), want) }) {
			t.Errorf("the report has nothing of %q:\n%v", want, out.Report)
		}
	}
	if strings.Contains(text, "else") || slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Field == argumentsEntry || e.Field == configEntry }) {
		t.Errorf("what the controller does not read counts, or its arguments are said to be unknown: %v\n%s", out.Report, text)
	}
	const refusing = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: config, namespace: ingress-nginx}\ndata: {stream-snippet: \"deny 192.0.2.0/24;\"}\n"
	withSnippet := convert(t, strings.Replace(input, "controller, --tcp", "controller, --configmap=ingress-nginx/config, --tcp", 1)+refusing+ingressOf("a", "web", "a.test", "own", ""))
	if text := string(withSnippet.YAML()); strings.Contains(text, "kind: TCPRoute") || strings.Contains(text, "kind: UDPRoute") || withSnippet.Report.Count(NotTranslated) < 7 {
		t.Errorf("ports are open that a snippet may have closed: %v\n%s", withSnippet.Report, text)
	}
	in := new(Input)
	in.Read("ports.yaml", []byte(input[strings.Index(input, "---\n"):strings.LastIndex(input, "---\n")]))
	named := options
	named.TCPServices, named.UDPServices = "someone/tcp-services", "none/there"
	out = Convert(in, named) // also without an Ingress
	if text := string(out.YAML()); !strings.Contains(text, "name: else-tcp-9\n  namespace: someone\n") || strings.Contains(text, "udp-53") {
		t.Errorf("the flags name other ConfigMaps than those that are read:\n%s", text)
	}
	if !slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Object == "ConfigMap none/there" && e.Outcome == NotTranslated }) {
		t.Errorf("the report has nothing of the ConfigMap that is not there: %v", out.Report)
	}
}

// TestPortsOfUnknownConfigMaps: a ConfigMap that nothing names opens no port, so that a tenant cannot publish the Service of another namespace, and each of its keys has an entry.
func TestPortsOfUnknownConfigMaps(t *testing.T) {
	ports := func(namespace, protocol string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + protocol + "-services, namespace: " + namespace + "}\ndata: {\"5432\": \"db/postgres:5432\"}\n"
	}
	for _, input := range []string{ports("aaa-tenant", "tcp"), ports("aaa-tenant", "tcp") + ports("ingress-nginx", "tcp"), ports("aaa-tenant", "udp")} {
		out := convert(t, input+ingressOf("a", "web", "a.test", "own", ""))
		if text := string(out.YAML()); strings.Contains(text, "postgres") || strings.Contains(text, "port: 5432") {
			t.Errorf("a port is open:\n%s", text)
		}
		said := 0
		for _, e := range out.Report {
			if strings.HasSuffix(e.Object, "p-services") && e.Field == "5432" && e.Outcome == NotTranslated && strings.Contains(e.Remedy, "p-services-configmap") {
				said++
			}
		}
		if want := strings.Count(input, "kind: ConfigMap"); said != want {
			t.Errorf("%d keys have an entry that says how to name their ConfigMap, want %d: %v", said, want, out.Report)
		}
	}
}

// TestKeysOfPorts: of keys and values of ports each that cannot be served has an entry with the reason, and no two listeners have one port.
func TestKeysOfPorts(t *testing.T) {
	for _, c := range []struct{ protocol, arguments, data, want string }{
		{"tcp", "", `"9000": db/one:1, "09000": db/two:2`, "09000: not translated: the port is that of key 9000, too"},
		{"tcp", "", `"09000": db/one:1`, "09000: approximated: a listener"},
		{"tcp", "", `"9000": db/one/x:1`, "9000: not translated: is not a port with namespace/service:port"},
		{"tcp", "", `"9000": DB/one:1`, "9000: not translated: is not a port with"},
		{"tcp", "", `"9000": db/-one:1`, "9000: not translated: is not a port with"},
		{"tcp", "", `"9000": "db/1one:1"`, "9000: not translated: is not a port with"},
		{"tcp", "", `"9000": db/one:70000`, "9000: not translated: is not a port with"},
		{"tcp", "", `"9000": "db/one:-1"`, "9000: not translated: is not a port with"},
		{"tcp", "", `"9000": db/one:0`, "9000: not translated: is not a port with"},
		{"tcp", "", `"70000": db/one:1`, "70000: not translated: is not a port with"},
		{"tcp", "", `"10254": db/one:1`, "10254: not translated: the port is one that ingress-nginx reserves for itself, by --healthz-port, and leaves out, too"},
		{"tcp", "", `"442": db/one:1`, "442: not translated: the port is one that ingress-nginx reserves for itself, by --ssl-passthrough-proxy-port"},
		{"tcp", "", `"8181": db/one:1`, "8181: not translated: the port is one that ingress-nginx reserves for itself, by --default-server-port"},
		{"udp", "", `"10245": db/one:1`, "10245: not translated: the port is one that ingress-nginx reserves for itself, by --profiler-port"},
		{"udp", "", `"10246": db/one:1`, "10246: not translated: the port is one that ingress-nginx reserves for itself, by --status-port"},
		{"udp", "", `"10247": db/one:1`, "10247: not translated: the port is one that ingress-nginx reserves for itself, by --stream-port"},
		{"tcp", "--https-port=8443, ", `"8443": db/one:1`, "8443: not translated: the port is one that ingress-nginx reserves for itself, by --https-port"},
		{"tcp", "--https-port=8443, ", `"443": db/one:1`, "443: not translated: the port is one of HTTP, and left out"},
		{"tcp", "--healthz-port=1, ", `"10254": db/one:1`, "10254: approximated: a listener"},
		{"udp", "", `"53": "db/one:53:PROXY"`, "53: approximated: a listener with a UDPRoute"},
		{"tcp", "", `"53": "db/one:53::PROXY"`, "53: not translated: the PROXY protocol"},
		{"udp", "", `"53": db/both:dns`, "53: approximated: a listener with a UDPRoute"},
		{"tcp", "", `"53": db/both:dns`, "53: not translated: the number of port dns of Service db/both is not known"},
	} {
		out := convert(t, deployment("x", "controller", official+"args: [/nginx-ingress-controller, "+c.arguments+"--"+c.protocol+"-services-configmap=x/ports]")+configOf("x", "ports", c.data)+
			"---\napiVersion: v1\nkind: Service\nmetadata: {name: both, namespace: db}\nspec: {ports: [{name: dns, port: 53, protocol: UDP}]}\n"+ingressOf("a", "web", "a.test", "own", ""))
		if !slices.ContainsFunc(out.Report, func(e Entry) bool {
			return strings.Contains(e.String(), "ConfigMap x/ports: "+c.want)
		}) {
			t.Errorf("%s of %s: the report has nothing of %q", c.data, c.protocol, c.want)
		}
		routes := 0
		if strings.Contains(c.want, "approximated") || strings.Contains(c.want, "key 9000") {
			routes = 1
		}
		if n := strings.Count(string(out.YAML()), "kind: "+strings.ToUpper(c.protocol)+"Route\n"); n != routes {
			t.Errorf("%s of %s: %d routes, want %d:\n%s", c.data, c.protocol, n, routes, out.YAML())
		}
	}
}

// TestPassthrough: connections with TLS for a host go to the backend of / where the controller has the argument, and as the oldest Ingress of the host says.
func TestPassthrough(t *testing.T) {
	ingress := func(name, host, path, on string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: " + name + ", namespace: a, annotations: {nginx.ingress.kubernetes.io/ssl-passthrough: \"" + on + "\"}}\n" +
			"spec: {ingressClassName: nginx, tls: [{hosts: [" + host + "], secretName: s}], rules: [{host: " + host + ", http: {paths: [{path: " + path + ", pathType: Prefix, backend: {service: {name: " + name + ", port: {number: 443}}}}]}}]}\n"
	}
	in := new(Input)
	in.Read("ingresses.yaml", []byte(ingress("db", "db.test", "/", "true")+ingress("below", "below.test", "/below", "true")+ingress("web", "web.test", "/", "false")))
	for _, on := range []bool{false, true} {
		o := options
		o.Passthrough = on
		out := Convert(in, o)
		text := string(out.YAML())
		if strings.Contains(text, "hostname: db.test\n    port: 443\n    protocol: TLS\n    tls:\n      mode: Passthrough\n") != on ||
			strings.Contains(text, "kind: TLSRoute\nmetadata:\n  name: db-tls-db.test\n  namespace: a\nspec:\n  parentRefs:\n  - name: ingress\n    sectionName: tls-db.test\n  hostnames:\n  - db.test\n  rules:\n  - backendRefs:\n    - name: db\n      port: 443\n") != on ||
			strings.Contains(text, "https-db.test") == on || strings.Count(text, "kind: TLSRoute") > 1 || !strings.Contains(text, "https-below.test") || !strings.Contains(text, "https-web.test") {
			t.Errorf("with passthrough %v:\n%s", on, text)
		}
		if slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Field == prefix+"ssl-passthrough" && e.Object == "Ingress a/db" && e.Outcome == NotTranslated
		}) == on {
			t.Errorf("with passthrough %v the report says %v", on, out.Report)
		}
	}
}

// TestPassthroughWithoutListener: the report says why there is no listener for connections with TLS.
func TestPassthroughWithoutListener(t *testing.T) {
	passed := strings.Replace(ingressOf("a", "db", "z.test", "own", prefix+`ssl-passthrough: "true"`), "path: /own", "path: /", 1)
	full := ""
	for n := range maxListeners {
		full += ingressOf("a", "i"+itoa(n), "h"+itoa(n)+".test", "own", "")
	}
	for input, want := range map[string]string{
		strings.Replace(passed, "number: 80", "name: sql", 1): "there is no listener for connections with TLS to z.test: the number of port sql of Service a/own is not known",
		passed + full: "there is no listener for connections with TLS to z.test: a Gateway has 64 listeners at most",
	} {
		in := new(Input)
		in.Read("in.yaml", []byte(input))
		o := options
		o.Passthrough = true
		if out := Convert(in, o); !slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Outcome == NotTranslated && e.Field == prefix+"ssl-passthrough" && e.Message == want
		}) {
			t.Errorf("the report has nothing of %q", want)
		}
	}
}

// TestManyUnknownFields: where a policy has more fields that are not known than can be named, nothing is said to be carried out.
func TestManyUnknownFields(t *testing.T) {
	text := "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: b}\nspec:\n"
	for n := range 2 * maxUnread {
		text += "  unheardOf" + itoa(n) + ": 1\n"
	}
	for _, e := range convert(t, text).Report {
		if e.Outcome != NotTranslated {
			t.Errorf("it is said: %v", e)
		}
	}
	if !slices.ContainsFunc(convert(t, text).Report, func(e Entry) bool {
		return strings.Contains(e.Message, "100 fields are not known, and others may not be")
	}) {
		t.Error("the report does not say that there may be others")
	}
}

// TestArguments: each argument of the controller has an entry, and where two controllers may be meant it is said.
func TestArguments(t *testing.T) {
	names := slices.Concat(argumentsWithoutEffect, slices.Sorted(maps.Keys(argumentNotes)), slices.Sorted(maps.Keys(argumentVerdicts)), []string{"no-such-argument"})
	slices.Sort(names)
	names = slices.Compact(names)
	text := "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: controller, namespace: x}\nspec:\n  template:\n    spec:\n      containers:\n      - image: sidecar\n        args: [--no]\n      - args:\n        - /nginx-ingress-controller\n"
	for _, name := range names {
		text += "        - --" + name + "=" + map[bool]string{true: "nginx", false: "a"}[name == "ingress-class"] + "\n"
	}
	out := convert(t, text+ingressOf("a", "web", "a.test", "own", ""))
	for n, name := range names {
		if !slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Object == "DaemonSet x/controller" && e.Field == "--"+name && e.Line == n+12 && e.Message != ""
		}) {
			t.Errorf("%s has no entry in line %d", name, n+12)
		}
	}
	two := `apiVersion: v1
kind: List
items:
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: one, namespace: x}, spec: {template: {spec: {containers: [{image: nginx-ingress-controller, args: [/nginx-ingress-controller, --configmap=x/one]}]}}}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: two, namespace: x}, spec: {template: {spec: {containers: [{image: nginx-ingress-controller, args: [/nginx-ingress-controller, --configmap=x/two, --watch-ingress-without-class]}]}}}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: internal, namespace: x}, spec: {template: {spec: {containers: [{image: nginx-ingress-controller, args: [/nginx-ingress-controller, --ingress-class=internal, --controller-class=k8s.io/internal]}]}}}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: unrelated, namespace: x}, spec: {template: {spec: {containers: [{image: app, args: [--configmap=x/three]}]}}}}
- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: inner}, spec: {controller: k8s.io/internal}}
`
	in := new(Input)
	in.Read("two.yaml", []byte(two))
	const several = "several controllers serve the class nginx: Deployment x/one (--configmap x/one), Deployment x/two (--configmap x/two); name the one that counts with --controller"
	const none = "there is no Deployment or DaemonSet x/none that runs ingress-nginx, but Deployment x/internal (--configmap of none), Deployment x/one (--configmap x/one), Deployment x/two (--configmap x/two); name the one that counts with --controller"
	for _, c := range []struct{ class, configMap, controller, ambiguous string }{
		{"nginx", "", "", several},
		{"nginx", "x/two", "", several},
		{"nginx", "", "x/two", ""},
		{"nginx", "", "x/internal", ""},
		{"nginx", "", "x/none", none},
		{"internal", "", "", ""},
		{"inner", "", "", ""},
		{"other", "", "", ""},
	} {
		o := options
		o.Class, o.ConfigMap, o.Controller = c.class, c.configMap, c.controller
		if got := in.Ambiguous(o); got != c.ambiguous {
			t.Errorf("class %s, ConfigMap %q and controller %q: %q, want %q", c.class, c.configMap, c.controller, got, c.ambiguous)
		}
	}
	o := options
	o.Controller = "x/two"
	if names, known := in.ConfigMaps(o); !known || !slices.Equal(names, []string{"x/two"}) {
		t.Errorf("the ConfigMaps that matter are %v, %v", names, known)
	}
	if names, known := new(Input).ConfigMaps(options); known || len(names) > 0 {
		t.Errorf("without a controller the ConfigMaps that matter are %v, %v", names, known)
	}
}

// deployment is one that runs a container, which is given as a YAML flow mapping has it.
func deployment(namespace, name, container string) string {
	return "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {template: {spec: {containers: [{" + container + "}]}}}\n"
}

// configOf is a ConfigMap with data as a YAML flow mapping has it.
func configOf(namespace, name, data string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + namespace + "}\ndata: {" + data + "}\n"
}

const official = "image: \"registry.k8s.io/ingress-nginx/controller:v1.14.0\", "

// TestArgumentsAsTheyAreGiven: arguments are read as the controller gets them, also by aliases and from its environment.
func TestArgumentsAsTheyAreGiven(t *testing.T) {
	const list = "args: [/nginx-ingress-controller, --configmap=x/config]"
	for _, container := range []string{
		official + list,
		"image: own, command: [/usr/bin/dumb-init, --], " + list,
		official + "command: [/usr/bin/dumb-init, --single-child, --, /nginx-ingress-controller], args: [--configmap, x/config]",
		official + "args: [/nginx-ingress-controller, --configmap=none/x, --configmap=x/config, --, --configmap=none/x]",
		official + "args: [/nginx-ingress-controller, --enable-metrics, --configmap=x/config]",
		official + "args: [/nginx-ingress-controller, \"--configmap=$(HERE)/config\"], env: [{name: HERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]",
		official + "args: [/nginx-ingress-controller, \"--configmap=$(ALL)\"], env: [{name: NAME, value: config}, {name: ALL, value: x/$(NAME)}]",
		official + "env: &a [/nginx-ingress-controller, &b --configmap=x/config], args: *a",
		official + "ports: [&b --configmap=x/config], args: [/nginx-ingress-controller, *b]",
		official + "resources: &r {args: [/nginx-ingress-controller, --configmap=x/config]}, <<: *r",
	} {
		in := new(Input)
		in.Read("in.yaml", []byte(deployment("x", "controller", container)))
		if names, known := in.ConfigMaps(options); !known || !slices.Equal(names, []string{"x/config"}) {
			t.Errorf("%s: the ConfigMaps are %v, %v", container, names, known)
		}
	}
}

// TestUnknownArguments: where the arguments of a controller are not known, the ConfigMap of its namespace counts that is named as by the chart. Without such a one nothing
// is open, since there may be another.
func TestUnknownArguments(t *testing.T) {
	auth := `global-auth-url: "http://auth.default.svc.cluster.local/check"`
	for _, container := range []string{
		official + `command: [sh, -c, "exec /nginx-ingress-controller --configmap=x/other"]`,
		`image: own, command: [sh, -c, "exec /nginx-ingress-controller --configmap=x/other"]`,
		official + `command: [/bin/sh, -c, 'exec "$@"', --, /nginx-ingress-controller, --configmap=x/other]`,
		official + `command: [/start, /nginx-ingress-controller]`,
		official + "args: [--configmap=x/other]",
		official + "args: --configmap=x/other",
		official + "args: [/nginx-ingress-controller, $(MORE)], envFrom: [{configMapRef: {name: more}}]",
		official + `args: [/nginx-ingress-controller, "--configmap=$(CONFIG)"], env: [{name: CONFIG, valueFrom: {secretKeyRef: {name: s, key: k}}}]`,
		official + "args: [/nginx-ingress-controller, --configmap=x/other]}, {" + official + "args: [/nginx-ingress-controller]",
	} {
		controller := deployment("x", "controller", container)
		for _, c := range []struct {
			config, named string
			backends      bool
			want          string
		}{
			{configOf("x", "ingress-nginx-controller", auth), "", true, "type: ExternalAuth"},
			{"", "", false, ""},
			{configOf("tenant", "ingress-nginx-controller", "no-auth-locations: /"), "", false, ""},
			{configOf("x", "config", auth), "x/config", true, "type: ExternalAuth"},
		} {
			in := new(Input)
			in.Read("in.yaml", []byte(controller+c.config+ingressOf("a", "web", "a.test", "own", "")))
			o := options
			o.ConfigMap = c.named
			out := Convert(in, o)
			if text := string(out.YAML()); len(in.Problems) > 0 || strings.Contains(text, "    backendRefs:\n    - name: own\n") != c.backends || !strings.Contains(text, c.want) {
				t.Errorf("%s\nwith %s and --configmap %q: backends must be there: %v, and %q:\n%s", container, c.config, c.named, c.backends, c.want, text)
			}
			for _, want := range []string{"Deployment x/controller: spec.template.spec.containers: not translated: the arguments of the controller are not known: ", "Deployment x/controller: metadata.name: approximated: is taken for the controller that serves the class nginx; ", "all: arguments of ingress-nginx: not translated"} {
				if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.Contains(e.String(), want) }) {
					t.Errorf("%s: the report has nothing of %q", container, want)
				}
			}
			if _, known := in.ConfigMaps(options); known {
				t.Errorf("%s: the ConfigMaps are said to be known", container)
			}
		}
	}
}

// TestUnknownPrefix: where the controller's arguments are not known, what annotations with another prefix may protect is closed.
func TestUnknownPrefix(t *testing.T) {
	for annotation, open := range map[string]bool{"edge.example.com/auth-type: basic": false, "edge.example.com/server-snippet: deny all;": false, "edge.example.com/proxy-body-size: 2m": true, "auth-type: basic": true} {
		in := new(Input)
		in.Read("in.yaml", []byte(deployment("x", "controller", official+"args: $(ALL)")+configOf("x", "ingress-nginx-controller", "")+ingressOf("a", "web", "a.test", "own", annotation)))
		out := Convert(in, options)
		name, _, _ := strings.Cut(annotation, ":")
		if strings.Contains(string(out.YAML()), "    - name: own\n") != open || slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Field == name && e.Outcome == NotTranslated }) == open {
			t.Errorf("%s: the path must be open: %v\n%v\n%s", annotation, open, out.Report, out.YAML())
		}
	}
}

// TestConfigMapThatIsNotRead: where the controller names no ConfigMap, one that looks like its own has an entry.
func TestConfigMapThatIsNotRead(t *testing.T) {
	out := convert(t, deployment("x", "controller", official+"args: [/nginx-ingress-controller]")+configOf("x", "ingress-nginx-controller", "proxy-body-size: 2m")+ingressOf("a", "web", "a.test", "own", ""))
	if !slices.ContainsFunc(out.Report, func(e Entry) bool {
		return e.Object == "ConfigMap x/ingress-nginx-controller" && e.Outcome == NotTranslated && strings.Contains(e.Message, "Deployment x/controller has no --configmap")
	}) || strings.Contains(string(out.YAML()), "2097152") {
		t.Errorf("%v\n%s", out.Report, out.YAML())
	}
	in := new(Input)
	in.Read("in.yaml", []byte(deployment("x", "controller", official+"args: [/nginx-ingress-controller, --tcp-services-configmap=x/tcp]")))
	if names, known := in.ConfigMaps(options); known || !slices.Equal(names, []string{"x/tcp"}) { // a cluster is asked for it
		t.Errorf("the ConfigMaps that matter are %v, %v", names, known)
	}
}

// TestConfigMapThatIsMissing: what the controller demands by a ConfigMap that is named and not in the input is not known, so that nothing is open. One that a cluster was asked for
// and does not have demands nothing.
func TestConfigMapThatIsMissing(t *testing.T) {
	byArgument := deployment("x", "controller", official+"args: [/nginx-ingress-controller, --configmap=x/own, --tcp-services-configmap=x/tcp]") +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: tcp, namespace: x}\ndata: {\"5432\": \"x/postgres:5432\"}\n"
	for name, c := range map[string]struct {
		input string
		edit  func(*Input, *Options)
		open  bool
	}{
		"by an argument":     {byArgument, func(*Input, *Options) {}, false},
		"by a flag":          {configOf("x", "ingress-nginx-controller", "proxy-body-size: 2m"), func(_ *Input, o *Options) { o.ConfigMap = "x/own" }, false},
		"not in a cluster":   {byArgument, func(in *Input, _ *Options) { in.Asked = []string{"x/own", "x/tcp"} }, true},
		"it is in the input": {byArgument + configOf("x", "own", "proxy-body-size: 2m"), func(*Input, *Options) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			in, o := new(Input), options
			in.Read("in.yaml", []byte(c.input+ingressOf("a", "web", "a.test", "own", "")))
			c.edit(in, &o)
			out := Convert(in, o)
			text := string(out.YAML())
			if got := strings.Contains(text, "name: own"); got != c.open {
				t.Errorf("the backend is asked: %v\n%s", got, text)
			}
			if got := strings.Contains(text, "postgres"); got != (c.open && strings.Contains(c.input, "postgres")) {
				t.Errorf("the port is open: %v\n%s", got, text)
			}
			outcome := NotTranslated
			if c.open {
				outcome = Approximated
			}
			said := slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Object == "ConfigMap x/own" && e.Outcome == outcome && e.Remedy != "" })
			if want := name != "it is in the input"; said != want {
				t.Errorf("it has an entry: %v: %v", said, out.Report)
			}
		})
	}
}

// TestConfigMapByItsName: one that counts by its name alone has an entry that says so, and none where it is named.
func TestConfigMapByItsName(t *testing.T) {
	for named, want := range map[string]bool{"": true, "x/ingress-nginx-controller": false} {
		in, o := new(Input), options
		in.Read("in.yaml", []byte(configOf("x", "ingress-nginx-controller", "proxy-body-size: 2m")+ingressOf("a", "web", "a.test", "own", "")))
		o.ConfigMap = named
		out := Convert(in, o)
		if got := slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Object == "ConfigMap x/ingress-nginx-controller" && e.Field == "metadata.name" && e.Outcome == Approximated && strings.Contains(e.Remedy, "--configmap")
		}); got != want {
			t.Errorf("with --configmap %q it has an entry: %v", named, got)
		}
	}
}

// TestControllerOfAnotherClass: each controller that is passed over has an entry, and while there is one no ConfigMap counts by its name, so that nothing is open.
func TestControllerOfAnotherClass(t *testing.T) {
	internal := deployment("x", "internal", official+"args: [/nginx-ingress-controller, --ingress-class=internal, --controller-class=k8s.io/internal]")
	config := configOf("x", "ingress-nginx-controller", `global-auth-url: "http://auth.default.svc.cluster.local/check"`)
	for _, c := range []struct {
		input, named string
		backends     bool
		want         string
	}{
		{internal + config, "", false, "Deployment x/internal: spec: not translated: is passed over: it serves the class internal as an annotation, and IngressClasses of controller k8s.io/internal"},
		{internal + config, "", false, "ConfigMap x/ingress-nginx-controller: data: not translated: is not read"},
		{internal + config, "", false, "ConfigMaps: --configmap: not translated: which ConfigMap the controller reads is not known"},
		{internal, "", true, "Deployment x/internal: spec: not translated: is passed over"},
		{internal + config, "x/internal", true, "Deployment x/internal: metadata.name: translated: is the controller, as --controller says"},
		{internal + deployment("x", "web", official+"args: [/nginx-ingress-controller]"), "", true, "Deployment x/internal: spec: not translated: is passed over"},
		{internal + deployment("x", "web", official+"args: [/nginx-ingress-controller]"), "", true, "Deployment x/web: metadata.name: approximated: is taken for the controller that serves the class nginx"},
		{internal + deployment("x", "web", official+"args: [/nginx-ingress-controller]"), "x/web", true, "Deployment x/internal: spec: translated: left out: --controller names another"},
	} {
		in := new(Input)
		in.Read("in.yaml", []byte(c.input+ingressOf("a", "web", "a.test", "own", "")))
		o := options
		o.Controller = c.named
		out := Convert(in, o)
		if strings.Contains(string(out.YAML()), "name: own\n") != c.backends {
			t.Errorf("backends must be there: %v\n%s", c.backends, out.YAML())
		}
		if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.Contains(e.String(), c.want) }) {
			t.Errorf("the report has nothing of %q", c.want)
		}
	}
}

// TestPrefixTakesNothingBack: --annotations-prefix of a controller that nobody has named opens nothing that an annotation protects.
func TestPrefixTakesNothingBack(t *testing.T) {
	controller := deployment("tenant", "mine", "image: x/nginx-ingress-controller, args: [/nginx-ingress-controller, --annotations-prefix=evil.io]")
	for _, annotation := range []string{`auth-url: "http://auth.default.svc.cluster.local/check"`, "auth-type: basic", "whitelist-source-range: 10.0.0.0/8", "server-snippet: deny all;", "auth-tls-secret: a/ca", "proxy-body-size: 2m"} {
		name, _, _ := strings.Cut(annotation, ":")
		hosts := slices.Contains(protectingHosts, name)
		in := new(Input)
		in.Read("in.yaml", []byte(controller+ingressOf("a", "closed", "a.test", "closed", prefix+annotation)+ingressOf("a", "beside", "a.test", "beside", "")))
		for _, named := range []string{"", "tenant/mine"} {
			o := options
			o.Controller = named
			out := Convert(in, o)
			text, open := string(out.YAML()), named != "" || name == "proxy-body-size"
			if strings.Contains(text, "    - name: closed\n") != open || strings.Contains(text, "    - name: beside\n") != (open || !hosts) {
				t.Errorf("%s, with --controller %q: the path must be open: %v\n%s", annotation, named, open, text)
			}
			if outcome := map[bool]Outcome{true: Translated, false: NotTranslated}[open]; !slices.ContainsFunc(out.Report, func(e Entry) bool { return e.Field == prefix+name && e.Outcome == outcome }) {
				t.Errorf("%s, with --controller %q: the report has no entry that it is %s", annotation, named, outcome)
			}
		}
	}
}

// TestDisableCatchAll: with --disable-catch-all an Ingress with a default backend is not served, also where it has rules, and one without is.
func TestDisableCatchAll(t *testing.T) {
	for _, value := range []string{"", "=1", "=t", "=T", "=True", "=TRUE", "=true", "=0", "=False"} {
		off := slices.Contains([]string{"=0", "=False"}, value)
		text := string(convert(t, deployment("x", "controller", official+"args: [/nginx-ingress-controller, --disable-catch-all"+value+"]")+
			strings.Replace(ingressOf("a", "both", "a.test", "ruled", ""), "rules:", "defaultBackend: {service: {name: fallback, port: {number: 80}}}, rules:", 1)+ingressOf("a", "web", "b.test", "own", "")).YAML())
		if strings.Contains(text, "name: ruled\n") != off || strings.Contains(text, "name: fallback\n") != off || !strings.Contains(text, "name: own\n") {
			t.Errorf("with --disable-catch-all%s:\n%s", value, text)
		}
	}
}

// TestBooleans: an argument that is neither true nor false has an entry, and one that is false by any of its spellings has no effect.
func TestBooleans(t *testing.T) {
	for value, want := range map[string]string{
		"=F":     "--disable-svc-external-name: translated: has no effect with this value",
		"=0":     "--disable-svc-external-name: translated: has no effect with this value",
		"=1":     "--disable-svc-external-name: not translated: Services of type ExternalName",
		"":       "--disable-svc-external-name: not translated: Services of type ExternalName",
		"=maybe": "--disable-svc-external-name: not translated: \"maybe\" is neither true nor false",
		"=":      "--disable-svc-external-name: not translated: \"\" is neither true nor false",
	} {
		out := convert(t, deployment("x", "controller", official+"args: [/nginx-ingress-controller, --disable-svc-external-name"+value+", none, --publish-service=]")+ingressOf("a", "web", "a.test", "own", ""))
		for _, want := range []string{want, "--publish-service: translated: has no effect with this value"} {
			if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.Contains(e.String(), want) }) {
				t.Errorf("%s: the report has nothing of %q", value, want)
			}
		}
	}
	if text := string(convert(t, deployment("x", "controller", official+"args: [/nginx-ingress-controller, --watch-ingress-without-class=T]")+strings.Replace(ingressOf("a", "web", "a.test", "own", ""), "ingressClassName: nginx, ", "", 1)).YAML()); !strings.Contains(text, "name: own\n") {
		t.Errorf("an Ingress without a class is not served:\n%s", text)
	}
}

// TestClassAsAnnotation: a class that is an annotation is compared with --ingress-class of the controller, or nginx, whatever IngressClass is read.
func TestClassAsAnnotation(t *testing.T) {
	for _, c := range []struct {
		argument, annotation string
		served               bool
	}{{"", "nginx", true}, {"", "web", false}, {", --ingress-class=edge", "edge", true}, {", --ingress-class=edge", "web", false}, {", --ingress-class=edge", "nginx", false}} {
		in := new(Input)
		in.Read("in.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: web}\nspec: {controller: k8s.io/ingress-nginx}\n"+deployment("x", "controller", official+"args: [/nginx-ingress-controller"+c.argument+"]")+
			strings.Replace(ingressOf("a", "web", "a.test", "own", classAnnotation+": "+c.annotation), "ingressClassName: nginx, ", "", 1)))
		o := options
		o.Class = "web"
		out := Convert(in, o)
		if strings.Contains(string(out.YAML()), "name: own\n") != c.served || !c.served && out.Report.Count(NotTranslated) == 0 {
			t.Errorf("%s with arguments %q must be served: %v\n%v\n%s", c.annotation, c.argument, c.served, out.Report, out.YAML())
		}
	}
}

// TestMergedIntoItself: reading ends, whatever is merged into what.
func TestMergedIntoItself(t *testing.T) {
	in := new(Input)
	in.Read("in.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nspec: &s {<<: *s}\n---\napiVersion: apps/v1\nkind: Deployment\nspec: &s {<<: [*s, *s, *s, *s]}\n"))
	if len(in.controllers) > 0 {
		t.Errorf("%d controllers", len(in.controllers))
	}
}

// TestGrantsAreReported: whoever may write an Ingress could have a grant made for the Service of others, which nobody had to agree to in ingress-nginx.
func TestGrantsAreReported(t *testing.T) {
	for annotation, value := range map[string]string{"auth-url": "http://auth.payments.svc.cluster.local/check", "mirror-target": "http://auth.payments.svc.cluster.local$request_uri"} {
		out := convert(t, ingressOf("tenant", "web", "a.test", "own", `nginx.ingress.kubernetes.io/`+annotation+`: "`+value+`"`))
		if !strings.Contains(string(out.YAML()), "kind: ReferenceGrant\nmetadata:\n  name: services-for-httproutes-of-tenant\n  namespace: payments\n") {
			t.Fatalf("%s: no grant in\n%s", annotation, out.YAML())
		}
		if !slices.ContainsFunc(out.Report, func(e Entry) bool {
			return e.Field == prefix+annotation && e.Outcome == Approximated && strings.Contains(e.Message, "refer to Service payments/auth, which a ReferenceGrant in namespace payments permits")
		}) {
			t.Errorf("%s: the report has nothing of the grant: %v", annotation, out.Report)
		}
	}
}

// TestForeignPolicies: each field of Envoy Gateway's policies has an entry with its line, those that nobody knows too.
func TestForeignPolicies(t *testing.T) {
	out := convert(t, `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: b}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: r}]
  retry:
    numRetries: 2
    numRetires: 3
  http2: {onInvalidMessage: TerminateStream, initialStreamWindowSize: 64Ki}
  rateLimit: {local: {rules: [{limit: {requests: 1, unit: Second}, clientSelectors: [{sourceCIDR: {value: 10.0.0.0/8}}]}]}}
  somethingNew: true
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: metadata}
spec:
  rateLimit: {global: {rules: [{limit: {requests: 1, unit: Second}, cost: {response: {from: Metadata, metadata: {namespace: a, key: b}}}}]}}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: typed}
spec:
  retry: {numRetries: many}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: ClientTrafficPolicy
metadata: {name: c, namespace: n}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}]
  tls:
    minVersion: "1.2"
    maxVersion: "1.3"
    somethingNew: {}
  timeout: {http: {idleTimeout: 5s}}
`)
	for _, want := range []string{
		"ingresses.yaml:5: BackendTrafficPolicy default/b: spec.targetRefs: translated: is carried out; what it names must be there",
		"ingresses.yaml:6: BackendTrafficPolicy default/b: spec.retry: translated: is carried out as it is: apply the policy unchanged; run moongate check",
		"ingresses.yaml:8: BackendTrafficPolicy default/b: spec.retry.numRetires: not translated: is not known, and the policy is not accepted with it",
		"ingresses.yaml:9: BackendTrafficPolicy default/b: spec.http2.onInvalidMessage: not translated: is not carried out",
		"ingresses.yaml:9: BackendTrafficPolicy default/b: spec.http2.initialStreamWindowSize: translated",
		"ingresses.yaml:10: BackendTrafficPolicy default/b: spec.rateLimit: translated",
		"ingresses.yaml:11: BackendTrafficPolicy default/b: spec.somethingNew: not translated: is not known",
		"ingresses.yaml:17: BackendTrafficPolicy default/metadata: spec.rateLimit: not translated: what depends on metadata",
		"ingresses.yaml:19: BackendTrafficPolicy default/typed: spec: not translated: cannot be read: ",
		"ingresses.yaml:31: ClientTrafficPolicy n/c: spec.tls.minVersion: not translated: maps to moongate.dev/tls-min-version",
		"ingresses.yaml:32: ClientTrafficPolicy n/c: spec.tls.maxVersion: not translated: TLS 1.3",
		"ingresses.yaml:33: ClientTrafficPolicy n/c: spec.tls.somethingNew: not translated: has no counterpart that is known",
		"ingresses.yaml:34: ClientTrafficPolicy n/c: spec.timeout.http.idleTimeout: not translated: maps to ports[].idleTimeout",
	} {
		if !slices.ContainsFunc(out.Report, func(e Entry) bool { return strings.HasPrefix(e.String(), want) }) {
			t.Errorf("the report has nothing of %q", want)
		}
	}
	if out.Documents() > 0 || t.Failed() {
		t.Errorf("%d objects are made, and the report is", out.Documents())
		for _, e := range out.Report {
			t.Log(e)
		}
	}
}

// TestOlderBackend checks what is said of an Ingress of networking.k8s.io/v1 with the backend of v1beta1.
func TestOlderBackend(t *testing.T) {
	in := new(Input)
	in.Read("a.yaml", []byte(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: a
  namespace: shop
spec:
  rules:
  - host: a.test
    http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          serviceName: web
          servicePort: 80
`))
	const want = `a.yaml:14: Ingress shop/a: is no valid Ingress: unknown field "spec.rules[0].http.paths[0].backend.serviceName"; ` +
		`write service: {name: NAME, port: {number: PORT}}, as networking.k8s.io/v1 has it; serviceName and servicePort are of v1beta1`
	if len(in.Problems) != 1 || in.Problems[0].String() != want {
		t.Errorf("got  %v\nwant %s", in.Problems, want)
	}
}
