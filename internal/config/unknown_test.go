package config

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// newer is m with a field that this version does not know.
func newer[M proto.Message](t *testing.T, m M, number protowire.Number) M {
	t.Helper()
	testkit.AddField(t, m, number)
	return m
}

func TestCheckKnown(t *testing.T) {
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const strict = FirstIgnorable - 1
	rule := func(r *Rule) *Resource {
		return &Resource{Kind: &Resource_Route{Route: &Route{Rules: []*Rule{{}, r}}}}
	}
	listener := func(l *Listener) *Resource { return &Resource{Kind: &Resource_Listener{Listener: l}} }
	for _, tc := range []struct {
		name, in string // the message that has it, "" where all is known
		m        *Resource
	}{
		{"known", "", listener(&Listener{Key: "k", TlsOptions: &TLSOptions{MinVersion: 0x0304}})},
		{"listener", "Listener", listener(newer(t, &Listener{}, strict))},
		{"ignorable", "", listener(newer(t, &Listener{}, FirstIgnorable))},
		{"behind one that is ignorable", "Listener", listener(newer(t, newer(t, &Listener{}, FirstIgnorable), strict))},
		{"nested", "TLSOptions", listener(&Listener{TlsOptions: newer(t, &TLSOptions{}, strict)})},
		{"second rule", "Rule", rule(newer(t, &Rule{}, strict))},
		{"match", "Match", rule(&Rule{Matches: []*Match{newer(t, &Match{}, strict)}})},
		{"filter", "CORS", rule(&Rule{Filters: []*anypb.Any{pack(newer(t, &CORS{}, strict))}})},
		{"filter of an unknown type", "", rule(&Rule{Filters: []*anypb.Any{{TypeUrl: "type.googleapis.com/moongate.config.v1.None"}}})},
		{"resource", "Resource", newer(t, listener(&Listener{}), strict)},
	} {
		err := CheckKnown(tc.m)
		if tc.in == "" && err != nil || tc.in != "" && (err == nil || !strings.Contains(err.Error(), "field 999 of its "+tc.in+" is unknown")) {
			t.Errorf("%s: %v, want a field of %q", tc.name, err, tc.in)
		}
	}
}

// TestCheckKnownValues: a value of an enum that this version does not know is not taken for the default.
func TestCheckKnownValues(t *testing.T) {
	for value, want := range map[BackendProtocol]string{
		BackendProtocol_BACKEND_PROTOCOL_HTTP:      "",
		BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET: "",
		99: "value 99 of field protocol of its Backend is unknown",
	} {
		err := CheckKnown(&Resource{Kind: &Resource_Backend{Backend: &Backend{Key: "k", Protocol: value}}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %v, want %q", value, err, want)
		}
	}
	several := &Retry{Triggers: []RetryTrigger{RetryTrigger_RETRY_TRIGGER_RESET, 99}}
	if err := CheckKnown(several); err == nil || !strings.Contains(err.Error(), "value 99 of field triggers of its Retry is unknown") {
		t.Errorf("one of several: %v", err)
	}
}

// ignorable are the fields that proxies which do not know them may ignore, and why.
var ignorable = map[protoreflect.FullName]string{
	"moongate.config.v1.Backend.retry_budget":        "without it more requests are tried again, which is better than that none is sent",
	"moongate.config.v1.Backend.session_persistence": "without it requests of a session go to any endpoint, which is better than to none",
	"moongate.config.v1.Rule.session_persistence":    "the same",
	"moongate.config.v1.Listener.tracing":            "without it requests are not traced, which is better than that they fail",
	"moongate.config.v1.Listener.rate_limit_service": "it is there for RuleTraffic.rate_limits alone, which is refused",
	"moongate.config.v1.Endpoint.identity":           "it is there for session_persistence alone",
	"moongate.config.v1.Endpoint.zone":               "it is there for Backend.traffic alone, which is refused",
	"moongate.config.v1.RuleTraffic.hidden":          "people read it",
	"moongate.config.v1.Match.added_headers":         "without it a CORS filter answers preflight requests that a match on OPTIONS would have, as it did before",
	"moongate.config.v1.L4Route.traffic":             "the same",
	"moongate.config.v1.TicketKeys.session_keys":     "they are there for session_persistence alone",
	"moongate.config.v1.Listener.merged":             "it says which proxies are sent the listener",
	"moongate.config.v1.TicketKeys.merged":           "the same",
	"moongate.config.v1.RateLimitService.merged":     "the same",
}

// TestIgnorableFields: whoever gives a field a number that older proxies ignore says here why it restricts nothing.
func TestIgnorableFields(t *testing.T) {
	fields := 0
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		if d.ParentFile().Package() != "moongate.config.v1" {
			return true
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			fields++
			if f.IsMap() && f.MapValue().Enum() != nil {
				t.Errorf("field %s maps to values of an enum: checkValue overlooks them", f.FullName())
			}
			if said := ignorable[f.FullName()] != ""; said != (f.Number() >= FirstIgnorable) {
				t.Errorf("field %s has number %d: those from %d on, and no others, are among ignorable", f.FullName(), f.Number(), FirstIgnorable)
			}
		}
		return true
	})
	if fields < 100 {
		t.Errorf("%d fields were found", fields)
	}
}
