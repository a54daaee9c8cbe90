package show

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const ours = "moongate.dev/gateway-controller"

// objects reads one object in JSON for each argument.
func objects(t *testing.T, texts ...string) []*Object {
	t.Helper()
	var items []any
	for _, text := range texts {
		items = append(items, json.RawMessage(text))
	}
	o, err := Objects(items, ours)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const (
	class        = `{"kind":"GatewayClass","metadata":{"name":"moongate"},"spec":{"controllerName":"` + ours + `"},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"},{"type":"SupportedVersion","status":"True","reason":"SupportedVersion","message":"v1.7.0"}]}}`
	mine         = `{"kind":"Gateway","metadata":{"namespace":"b","name":"mine"},"spec":{"gatewayClassName":"moongate"},"status":{"conditions":[{"type":"Accepted","status":"True"}]}}`
	foreignClass = `{"kind":"GatewayClass","metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"},"status":{"conditions":[{"type":"Accepted","status":"False","reason":"Bad","message":"theirs"}]}}`
)

func TestTable(t *testing.T) {
	for _, c := range []struct {
		name, object, want string
	}{
		{"a Gateway that is well", `{"kind":"Gateway","metadata":{"namespace":"a","name":"gw","generation":1},"spec":{"gatewayClassName":"moongate"},"status":{
			"conditions":[{"type":"Accepted","status":"True","observedGeneration":1},{"type":"example.com/Seen","status":"True","message":"whatever"}],
			"listeners":[{"name":"http","attachedRoutes":1},{"name":"https","attachedRoutes":2}]}}`,
			"Gateway a/gw | ok | http: 1 route, https: 2 routes"},
		{"one of a foreign class", `{"kind":"Gateway","metadata":{"namespace":"a","name":"gw"},"spec":{"gatewayClassName":"other"},"status":{"conditions":[{"type":"Accepted","status":"False","reason":"Theirs"}]}}`,
			"Gateway a/gw | - | managed by controller example.com/other"},
		{"one of no class", `{"kind":"Gateway","metadata":{"namespace":"a","name":"gw"},"spec":{"gatewayClassName":"none"},"status":{"conditions":[{"type":"Accepted","status":"Unknown","reason":"Pending","message":"Waiting for controller"}]}}`,
			"Gateway a/gw | - | not managed by " + ours + ": its GatewayClass does not exist"},
		{"a cause and its consequence", `{"kind":"Gateway","metadata":{"namespace":"a","name":"gw"},"spec":{"gatewayClassName":"moongate"},"status":{"conditions":[
			{"type":"Accepted","status":"False","reason":"Invalid","message":"two\n  lines"},{"type":"Programmed","status":"False","reason":"Invalid","message":"not accepted"}]}}`,
			"Gateway a/gw | Accepted=False | Invalid: two lines (here)"},
		{"a route of two controllers", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web"},"status":{"parents":[
			{"parentRef":{"name":"theirs"},"controllerName":"example.com/other","conditions":[{"type":"Accepted","status":"False","reason":"Theirs"}]},
			{"parentRef":{"name":"gw","namespace":"b","sectionName":"http","port":80},"controllerName":"` + ours + `","conditions":[{"type":"Accepted","status":"True"}]}]}}`,
			"HTTPRoute a/web | ok | parent b/gw listener http port 80"},
		{"a route with a dropped rule and a note", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web"},"status":{"parents":[{"parentRef":{"name":"gw"},"controllerName":"` + ours + `","conditions":[
			{"type":"Accepted","status":"True","reason":"Accepted","message":"spec.x is not followed"},{"type":"PartiallyInvalid","status":"True","reason":"UnsupportedValue","message":"Dropped rule 1"}]}]}}`,
			"HTTPRoute a/web | PartiallyInvalid=True | parent gw: UnsupportedValue: Dropped rule 1 (here)\n | note | parent gw: Accepted: spec.x is not followed (here)"},
		{"a route of others only", `{"kind":"TCPRoute","metadata":{"namespace":"a","name":"x"},"status":{"parents":[{"parentRef":{"name":"theirs"},"controllerName":"example.com/other"}]}}`,
			"TCPRoute a/x | - | none of its parents is a Gateway of controller " + ours},
		{"a route that the controller has not come to", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"name":"mine","namespace":"b"}]}}`,
			"HTTPRoute a/x | waiting | controller " + ours + " has written no status: does it run?"},
		{"a route to a Gateway elsewhere", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"name":"gw","namespace":"c"}]}}`,
			"HTTPRoute a/x | - | controller " + ours + " has written no status, and its Gateway is in another namespace"},
		{"a route to a Gateway that does not exist", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"name":"none"}]}}`,
			"HTTPRoute a/x | not served | Gateway a/none does not exist; create it or correct the name"},
		{"a route to a Gateway of another namespace that it does not name", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"name":"mine"}]}}`,
			"HTTPRoute a/x | not served | Gateway a/mine does not exist; did you mean the one in namespace b? Then write namespace: b in the parentRef"},
		{"a route to a Gateway that is written wrongly", `{"kind":"HTTPRoute","metadata":{"namespace":"b","name":"x"},"spec":{"parentRefs":[{"name":"mien"}]}}`,
			"HTTPRoute b/x | not served | Gateway b/mien does not exist; create it or correct the name; this namespace has mine"},
		{"a route to a Gateway that does not exist, and another elsewhere", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"name":"none"},{"name":"gw","namespace":"c"}]}}`,
			"HTTPRoute a/x | - | Gateway a/none does not exist; create it or correct the name"},
		{"a route to a Service", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"x"},"spec":{"parentRefs":[{"kind":"Service","name":"none"}]}}`,
			"HTTPRoute a/x | - | none of its parents is a Gateway of controller " + ours},
		{"a policy", `{"kind":"BackendTLSPolicy","metadata":{"namespace":"a","name":"tls"},"status":{"ancestors":[
			{"ancestorRef":{"name":"gw"},"controllerName":"` + ours + `","conditions":[{"type":"ResolvedRefs","status":"False","reason":"InvalidCACertificateRef","message":"gone"}]}]}}`,
			"BackendTLSPolicy a/tls | ResolvedRefs=False | ancestor gw: InvalidCACertificateRef: gone (here)"},
		{"a policy that nothing uses", `{"kind":"BackendTLSPolicy","metadata":{"namespace":"a","name":"tls"},"spec":{"targetRefs":[{"kind":"Service","name":"none"}]}}`,
			"BackendTLSPolicy a/tls | - | no Gateway of controller " + ours + " uses its targets, they are not in this namespace, or no status was written yet"},
		{"a policy with one target, which is no object", `{"kind":"BackendTrafficPolicy","metadata":{"namespace":"a","name":"p"},"spec":{"targetRef":"web"}}`,
			"BackendTrafficPolicy a/p | - | no Gateway of controller " + ours + " uses its targets, they are not in this namespace, or no status was written yet"},
		{"a policy for what has a label", `{"kind":"BackendTrafficPolicy","metadata":{"namespace":"a","name":"p"},"spec":{"targetSelectors":[{"kind":"HTTPRoute"}]}}`,
			"BackendTrafficPolicy a/p | - | no Gateway of controller " + ours + " uses its targets, they are not in this namespace, or no status was written yet"},
		{"a policy with a full status", `{"kind":"BackendTLSPolicy","metadata":{"namespace":"a","name":"tls"},"status":{"ancestors":[` +
			strings.Repeat(`{"ancestorRef":{"name":"gw"},"controllerName":"example.com/other"},`, 15) + `{"ancestorRef":{"name":"gw"},"controllerName":"example.com/other"}]}}`,
			"BackendTLSPolicy a/tls | - | the status has no room for an entry of controller " + ours + ": if there would be one, the controller's log and an Event with reason StatusFull have what it would report"},
		{"an edit that nobody has seen", `{"kind":"GatewayParameters","metadata":{"namespace":"a","name":"big","generation":3},"status":{"conditions":[{"type":"Accepted","status":"True","observedGeneration":2}]}}`,
			"GatewayParameters a/big | ok | \n | late | the status is of generation 2, the object of 3: the controller has not come to it"},
		{"a route that falls back", `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web","generation":3},"status":{"parents":[{"parentRef":{"name":"gw"},"controllerName":"` + ours + `","conditions":[
			{"type":"Accepted","status":"True","observedGeneration":2},{"type":"ResolvedRefs","status":"True","observedGeneration":3},
			{"type":"PartiallyInvalid","status":"True","reason":"UnsupportedValue","observedGeneration":3,"message":"Fall Back to the version before"}]}]}}`,
			"HTTPRoute a/web | PartiallyInvalid=True | parent gw: UnsupportedValue: Fall Back to the version before (here)"},
		{"no status at all", `{"kind":"ReferenceGrant","metadata":{"namespace":"a","name":"g"}}`, "ReferenceGrant a/g | - | "},
	} {
		var b strings.Builder
		shown := objects(t, class, foreignClass, mine, c.object)
		if err := Table(&b, shown, func(*Object, string) string { return "here" }); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if got := columns(lines[:3]); got != "OBJECT | STATE | WHY\nGatewayClass moongate | ok | \nGatewayClass other | - | managed by controller example.com/other" {
			t.Errorf("%s: the classes are shown as\n%s", c.name, got)
		}
		if got := columns(lines[4:]); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// columns are lines of a table with " | " between the columns, however wide.
func columns(lines []string) string {
	var out []string
	for _, line := range lines {
		var cells []string
		for cell := range strings.SplitSeq(line, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" || len(cells) == 0 {
				cells = append(cells, cell)
			}
		}
		for len(cells) < 3 {
			cells = append(cells, "")
		}
		out = append(out, strings.Join(cells, " | "))
	}
	return strings.Join(out, "\n")
}

func TestListenerSetBelongsToItsGatewaysClass(t *testing.T) {
	const set = `{"kind":"ListenerSet","metadata":{"namespace":"a","name":"s"},"spec":{"parentRef":{"name":"gw","namespace":"b"}},"status":{"conditions":[{"type":"Accepted","status":"False","reason":"NotAllowed"}]}}`
	gateway := func(class string) string {
		return `{"kind":"Gateway","metadata":{"namespace":"b","name":"gw"},"spec":{"gatewayClassName":"` + class + `"}}`
	}
	for class, want := range map[string]int{"moongate": 1, "other": 0} {
		shown := objects(t, `{"kind":"GatewayClass","metadata":{"name":"moongate"},"spec":{"controllerName":"`+ours+`"}}`, foreignClass, gateway(class), set)
		if got := shown[3].Complaints(); len(got) != want {
			t.Errorf("class %s: %v", class, got)
		}
	}
}

func TestComplaintPrints(t *testing.T) {
	c := objects(t, `{"kind":"GatewayClass","metadata":{"name":"x"},"spec":{"controllerName":"`+ours+`"},"status":{"conditions":[{"type":"Accepted","status":"False","reason":"Bad","message":"it is"}]}}`)[0].Complaints()
	if len(c) != 1 || c[0].String() != "GatewayClass x: Accepted=False Bad: it is" {
		t.Errorf("%v", c)
	}
}

// TestFieldOfComplaint checks that a fault within a rule is placed there, not at the rules.
func TestFieldOfComplaint(t *testing.T) {
	for message, want := range map[string]string{
		"spec.parentRefs[0].sectionName: no": "spec.parentRefs[0].sectionName",
		"spec.rules: no rule can be carried out: Rule 3: spec.rules[3].filters[1].extensionRef.kind: no": "spec.rules[3].filters[1].extensionRef.kind",
		"Dropped Rule 1: spec.rules[1].matches[0].path.value: no. Rule 2: spec.rules[2].name: no":        "spec.rules[1].matches[0].path.value",
		"nothing of a field": "",
	} {
		if got := (Complaint{Message: message}).Field(); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// TestBlame checks that what follows from a cause at another object is told apart, and that an object that was refused is not said to be absent.
func TestBlame(t *testing.T) {
	route := func(message string) string {
		return `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web"},"status":{"parents":[{"parentRef":{"name":"gw"},"controllerName":"` + ours +
			`","conditions":[{"type":"ResolvedRefs","status":"False","reason":"R","message":"` + message + `"}]}]}}`
	}
	policy := func(status string) string {
		return `{"kind":"BackendTLSPolicy","metadata":{"namespace":"a","name":"tls"},"status":{"ancestors":[{"ancestorRef":{"name":"gw"},"controllerName":"` + ours +
			`","conditions":[{"type":"Accepted","status":"` + status + `","reason":"P"}]}]}}`
	}
	const absent, carried = "Secret a/s does not exist; create it or correct the name", "BackendTLSPolicy a/tls is for Service a/s and cannot be carried out: x"
	for _, c := range []struct {
		message, policy, refused string
		follows                  bool
		want                     string
	}{
		{absent, "True", "", false, absent},
		{absent, "True", "Secret a/s", true, "Secret a/s is not valid; correct what is reported of it"},
		{absent, "True", "Secret b/s", false, absent},
		{"Secret a/s is not valid; correct what is reported of it", "True", "Secret a/s", true, "Secret a/s is not valid; correct what is reported of it"},
		{"X" + absent, "True", "Secret a/s", false, "X" + absent},
		{carried, "False", "", true, carried},
		{carried, "True", "", false, carried},
		{"BackendTLSPolicy a/gone, which may ask for TLS to Service a/s, cannot be read: x; correct it, or install the CustomResourceDefinitions of this version", "True",
			"BackendTLSPolicy a/gone", true, "BackendTLSPolicy a/gone, which may ask for TLS to Service a/s, cannot be read: x; correct it"},
		{"GatewayParameters a/p cannot be read: x; correct it, or install the CustomResourceDefinitions of this version", "True", "GatewayParameters a/p", true,
			"GatewayParameters a/p cannot be read: x; correct it"},
	} {
		shown := objects(t, route(c.message), policy(c.policy))
		refused := map[string]bool{}
		if c.refused != "" {
			refused[c.refused] = true
		}
		Blame(shown, refused)
		Suggest(shown, func(message, namespace string) string {
			if namespace != "a" {
				t.Errorf("namespace %q", namespace)
			}
			return message + " (rewritten)"
		})
		if !c.follows {
			c.want += " (rewritten)"
		}
		got := shown[0].Complaints()
		if len(got) != 1 || got[0].Message != c.want || got[0].Follows != c.follows {
			t.Errorf("%q, policy %s, refused %q: %+v", c.message, c.policy, c.refused, got)
		}
	}
}

// TestNotServed: a route is not shown as ok that is accepted on listeners none of which is programmed.
func TestNotServed(t *testing.T) {
	listener := func(name, programmed string) string {
		return `{"name":"` + name + `","attachedRoutes":1,"conditions":[{"type":"Programmed","status":"` + programmed + `"}]}`
	}
	gateway := func(name, accepted, listeners string) string {
		return `{"kind":"Gateway","metadata":{"namespace":"a","name":"` + name + `"},"spec":{"gatewayClassName":"moongate","listeners":[{"name":"one","port":80},{"name":"two","port":81}]},
			"status":{"conditions":[{"type":"Accepted","status":"` + accepted + `"}],"listeners":[` + listeners + `]}}`
	}
	items := []string{class, gateway("refused", "False", listener("one", "False")+","+listener("two", "False")), gateway("half", "True", listener("one", "False")+","+listener("two", "True")),
		gateway("new", "True", listener("one", "Unknown"))}
	parent := func(ref, accepted string) string {
		return `{"parentRef":{` + ref + `},"controllerName":"` + ours + `","conditions":[{"type":"Accepted","status":"` + accepted + `","reason":"R","message":"m"}]}`
	}
	for _, c := range []struct{ parents, want string }{
		{parent(`"name":"refused"`, "True"), "not served | parent refused: not accepted; see Gateway a/refused"},
		{parent(`"name":"half"`, "True"), "ok | parent half"},
		{parent(`"name":"half","sectionName":"one"`, "True"), "not served | parent half listener one: not programmed; see Gateway a/half"},
		{parent(`"name":"half","port":80`, "True"), "not served | parent half port 80: not programmed; see Gateway a/half"},
		{parent(`"name":"half","port":81`, "True"), "ok | parent half port 81"},
		{parent(`"name":"new"`, "True"), "ok | parent new"},
		{parent(`"name":"unseen"`, "True"), "ok | parent unseen"},
		{parent(`"name":"half"`, "True") + "," + parent(`"name":"refused","namespace":"a"`, "True"), "ok | parent half, parent a/refused: not accepted; see Gateway a/refused"},
		{parent(`"name":"refused"`, "False"), "Accepted=False | parent refused: R: m"},
		{parent(`"name":"half"`, "False") + "," + parent(`"name":"refused"`, "True"), "Accepted=False | parent half: R: m\n | not served | parent half, parent refused: not accepted; see Gateway a/refused"},
	} {
		var b strings.Builder
		shown := objects(t, append(items, `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web"},"status":{"parents":[`+c.parents+`]}}`)...)
		if err := Table(&b, shown[len(items):], func(*Object, string) string { return "" }); err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		rows = slices.DeleteFunc(rows, func(row string) bool { return strings.Contains(row, "  note  ") })
		if got, want := columns(rows[1:]), "HTTPRoute a/web | "+c.want; got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.parents, got, want)
		}
	}
}

// TestInvalidGateway: what depends on a Gateway that is not valid, and so is not shown, says so.
func TestInvalidGateway(t *testing.T) {
	shown := objects(t, class,
		`{"kind":"ListenerSet","metadata":{"namespace":"a","name":"set"},"spec":{"parentRef":{"name":"gw","namespace":"b"}}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-set"},"spec":{"parentRefs":[{"kind":"ListenerSet","name":"set"}]}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-default"},"spec":{"useDefaultGateways":"All"}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-others"},"spec":{"parentRefs":[{"kind":"ListenerSet","name":"other"}],"useDefaultGateways":"None"}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-gateway"},"spec":{"parentRefs":[{"name":"gw","namespace":"b"}]}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-two"},"spec":{"parentRefs":[{"name":"gw","namespace":"b"},{"name":"other","namespace":"d"}]}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-foreign"},"spec":{"parentRefs":[{"name":"gw","namespace":"b"},{"name":"foreign"}]}}`,
		`{"kind":"Gateway","metadata":{"namespace":"a","name":"foreign"},"spec":{"gatewayClassName":"foreign"}}`,
		`{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"of-foreign-alone"},"spec":{"parentRefs":[{"name":"foreign"}]}}`)
	Blame(shown, map[string]bool{"Gateway b/gw": true, "Gateway c/gw": true})
	for i, want := range []struct{ state, summary string }{
		{"ok", ""}, // the GatewayClass
		{notServed, "Gateway b/gw is not valid"},
		{notServed, "Gateway b/gw is not valid"},
		{"-", "Gateway b/gw, which may be a default Gateway, is not valid"},
		{"-", "none of its parents is a Gateway of controller " + ours},
		{notServed, "Gateway b/gw is not valid"},
		{"-", "Gateway b/gw is not valid"},                                    // another parent may be in the namespace that is not shown
		{"-", "Gateway b/gw is not valid"},                                    // another controller may serve it
		{"-", "not managed by " + ours + ": its GatewayClass does not exist"}, // the Gateway itself
		{"-", "none of its parents is a Gateway of controller " + ours},
	} {
		if got := shown[i]; got.state() != want.state || got.summary() != want.summary {
			t.Errorf("%s: %s, %q, want %s, %q", got, got.state(), got.summary(), want.state, want.summary)
		}
	}
}

// TestLeaveOut: what is reported of a field elsewhere is left out of a note, and the rest of the note stays.
func TestLeaveOut(t *testing.T) {
	for message, want := range map[string]string{
		"spec.a[0]: lost; correct it":                                    "",
		"spec.b: kept. See there; correct it":                            "spec.b: kept. See there; correct it",
		"spec.a[0]: lost. spec.b: kept; do. spec.a[1]: lost. and 2 more": "spec.b: kept; do. and 2 more",
		"spec.b: kept. spec.a[0]: lost; correct it":                      "spec.b: kept",
		"of no field": "of no field",
		"spec.useDefaultGateways: attached. spec.a[0]: lost; correct it.": "spec.useDefaultGateways: attached",
	} {
		shown := objects(t, `{"kind":"HTTPRoute","metadata":{"namespace":"a","name":"web"},"status":{"parents":[{"parentRef":{"name":"gw"},"controllerName":"`+ours+`","conditions":[
			{"type":"Accepted","status":"True","reason":"Accepted","message":"`+message+`"}]}]}}`)
		LeaveOut(shown, func(o *Object, field string) bool {
			return o.String() == "HTTPRoute a/web" && strings.HasPrefix(field, "spec.a[")
		})
		got := ""
		for _, n := range shown[0].Notes() {
			got += n.Message
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", message, got, want)
		}
	}
}
