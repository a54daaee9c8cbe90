package kind

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTrafficTargets: what a BackendTrafficPolicy that is not valid is for, "*" where that cannot be read, so that it may be for anything, and "" for nothing.
func TestTrafficTargets(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"beside an unknown field":     {`{"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"a"},{"kind":"Gateway","name":"b","sectionName":"c"}],"newField":1}`, "HTTPRoute/a Gateway/b/c"},
		"of the first design":         {`{"targetRef":{"kind":"Gateway","name":"a"}}`, "Gateway/a"},
		"of another group":            {`{"targetRefs":[{"group":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","name":"a"}]}`, "HTTPRoute/a"},
		"selected":                    {`{"targetSelectors":[{"kind":"HTTPRoute","matchLabels":{"tier":"web"}}],"retry":7}`, "HTTPRoute{tier=web}"},
		"both":                        {`{"targetRefs":[{"kind":"HTTPRoute","name":"a"}],"targetSelectors":[{"kind":"GRPCRoute","namespaces":{"from":"All"}}]}`, "HTTPRoute/a GRPCRoute{}"},
		"no list":                     {`{"targetRefs":"a"}`, "*"},
		"none":                        {`{"retry":{}}`, ""},
		"an empty list":               {`{"targetRefs":[],"retry":{}}`, ""},
		"an empty field":              {`{"targetRefs":null,"retry":{}}`, ""},
		"no spec at all":              {`null`, ""},
		"written otherwise":           {`{"TargetRefs":[{"kind":"HTTPRoute","name":"a"}]}`, "HTTPRoute/a"},
		"misspelt":                    {`{"targetsRef":[{"kind":"HTTPRoute","name":"a"}]}`, "*"},
		"misspelt at its begin":       {`{"tragetRefs":[{"kind":"HTTPRoute","name":"a"}]}`, "*"},
		"misspelt beside others":      {`{"targetRefs":[{"kind":"HTTPRoute","name":"a"}],"targetSelector":{"kind":"HTTPRoute"}}`, "*"},
		"of a route":                  {`{"parentRefs":[{"kind":"Gateway","name":"a"}]}`, "*"},
		"beside an unknown reference": {`{"targetRefs":[{"kind":"HTTPRoute","name":"a"}],"extensionRef":{"name":"b"}}`, "HTTPRoute/a"},
		"a Service":                   {`{"targetRefs":[{"group":"","kind":"Service","name":"a"}]}`, ""},
		"a Service beside others":     {`{"targetRefs":[{"kind":"Service","name":"a"},{"kind":"HTTPRoute","name":"b"}],"targetSelectors":[{"kind":"Service"},{"kind":"Gateway"}]}`, "HTTPRoute/b Gateway{}"},
		"one in another namespace":    {`{"targetRefs":[{"kind":"HTTPRoute","name":"a","namespace":"other"},{"kind":"HTTPRoute","name":"b","namespace":"ns"}]}`, "HTTPRoute/b"},
		"no spec":                     {`7`, "*"},
		"a name that is no text":      {`{"targetRefs":[{"kind":"HTTPRoute","name":"a"},{"kind":"HTTPRoute","name":7}]}`, "*"},
		"no name":                     {`{"targetRefs":[{"kind":"HTTPRoute"}]}`, "*"},
		"a kind that cannot be one":   {`{"targetRefs":[{"kind":"HTTPRoutes","name":"a"}]}`, "*"},
		"a selector of no kind":       {`{"targetSelectors":[{"matchLabels":{"tier":"web"}}]}`, "*"},
		"a malformed selector":        {`{"targetRefs":[{"kind":"HTTPRoute","name":"a"}],"targetSelectors":[{"kind":"HTTPRoute","matchExpressions":[{"key":"a","operator":"Is"}]}]}`, "*"},
		"namespaces without selector": {`{"targetSelectors":[{"kind":"HTTPRoute","namespaces":{"from":"Selector"}}]}`, "*"},
		"namespaces from elsewhere":   {`{"targetSelectors":[{"kind":"HTTPRoute","namespaces":{"from":"Any"}}]}`, "*"},
	} {
		u := BackendTrafficPolicy.Leftover([]byte(`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":`+test.spec+`}`), metav1.ObjectMeta{Namespace: "ns", Name: "p"}, errors.New("why"))
		var got []string
		for _, ref := range u.TrafficTargets {
			text := string(ref.Kind) + "/" + string(ref.Name)
			if ref.SectionName != nil {
				text += "/" + string(*ref.SectionName)
			}
			got = append(got, text)
		}
		for _, s := range u.TargetSelectors {
			got = append(got, string(s.Kind)+"{"+metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: s.MatchLabels})+"}")
		}
		if u.AnyTraffic {
			got = append(got, "*")
		}
		if text := strings.ReplaceAll(strings.Join(got, " "), "<none>", ""); text != test.want {
			t.Errorf("%s: for %s, want %s", name, text, test.want)
		}
		if u.CreationTimestamp.Year() != 2026 {
			t.Errorf("%s: created %s", name, u.CreationTimestamp)
		}
		if all := strings.Contains(u.Effect(), "all Gateways"); all != (test.want == "*") {
			t.Errorf("%s: %s", name, u.Effect())
		}
	}
}

// TestTrafficEffect: only requests can be answered; connections and datagrams pass without a policy that cannot be read.
func TestTrafficEffect(t *testing.T) {
	for _, test := range []struct{ spec, want string }{
		{`{"targetRefs":[{"kind":"TCPRoute","name":"a"},{"kind":"TLSRoute","name":"a"}],"targetSelectors":[{"kind":"UDPRoute"}]}`, "until it is valid, its targets are served without it"},
		{`{"targetRefs":[{"kind":"TCPRoute","name":"a"}],"targetSelectors":[{"kind":"GRPCRoute"}]}`, "until it is valid, requests for its targets are answered with 500 where it would be in force, alone or merged with another policy"},
		{`{"targetRefs":[{"kind":"Gateway","name":"a"},{"kind":"UDPRoute","name":"a"}]}`, "until it is valid, requests for its targets are answered with 500 where it would be in force, alone or merged with another policy"},
		{`{"rateLimit":{}}`, ""},
	} {
		if got := BackendTrafficPolicy.Leftover([]byte(`{"spec":`+test.spec+`}`), metav1.ObjectMeta{}, errors.New("why")).Effect(); got != test.want {
			t.Errorf("%s: %q, want %q", test.spec, got, test.want)
		}
	}
}

// TestPolicyTargetsLeftover: what a BackendTLSPolicy that is not valid is for, and how old it is.
func TestPolicyTargetsLeftover(t *testing.T) {
	for _, test := range []struct {
		object        string
		targets, year int // year 1 is that of no time at all
	}{
		{`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"targetRefs":[{"kind":"Service","name":"a"},{"kind":"Service","name":"b"}],"validation":7}}`, 2, 2026},
		{`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"targetRefs":[{"kind":"Service","name":7}]}}`, 0, 2026},
		{`{"metadata":{"creationTimestamp":"soon"},"spec":{"targetRefs":[{"kind":"Service","name":"a"}]}}`, 1, 1},
		{`{"spec":{"targetRefs":[{"kind":"Service","name":"a"}]}}`, 1, 1},
	} {
		u := BackendTLSPolicy.Leftover([]byte(test.object), metav1.ObjectMeta{Namespace: "ns", Name: "p"}, errors.New("why"))
		if len(u.Targets) != test.targets || u.CreationTimestamp.Year() != test.year {
			t.Errorf("%s: targets %v, created %s", test.object, u.Targets, u.CreationTimestamp)
		}
	}
}
