package config

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// simpleRoute is as most are: one rule with one match and one backend.
func simpleRoute(tb testing.TB, filters ...proto.Message) *Resource {
	tb.Helper()
	rule := &Rule{
		Matches:     []*Match{{Path: &PathMatch{Type: PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: "/x"}}},
		BackendRefs: []*BackendRef{{Backend: "Service/default/app/80", Weight: 1}},
	}
	for _, f := range filters {
		packed, err := anypb.New(f)
		if err != nil {
			tb.Fatal(err)
		}
		rule.Filters = append(rule.Filters, packed)
	}
	return &Resource{Kind: &Resource_Route{Route: &Route{
		Key: "HTTPRoute/default/app", Namespace: "default", Name: "app",
		Attachments: []*Attachment{{Listener: "default/gw/http", Hostnames: []*Hostname{{Effective: "app.example", Original: "app.example"}}}},
		Rules:       []*Rule{rule},
	}}}
}

func BenchmarkCheckKnown(b *testing.B) {
	for _, filters := range [][]proto.Message{nil, {&RequestHeaderModifier{Set: []*HeaderField{{Name: "x", Value: "y"}}}}} {
		b.Run(fmt.Sprintf("%d filters", len(filters)), func(b *testing.B) {
			r := simpleRoute(b, filters...)
			b.ReportAllocs()
			for b.Loop() {
				if err := CheckKnown(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCheckKnownAllocations: one for each list of messages that there is.
func TestCheckKnownAllocations(t *testing.T) {
	r := simpleRoute(t)
	if n := testing.AllocsPerRun(100, func() {
		if err := CheckKnown(r); err != nil {
			t.Fatal(err)
		}
	}); n > 5 {
		t.Errorf("%v allocations for a route with 5 lists, want one for each", n)
	}
}
