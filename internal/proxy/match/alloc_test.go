//go:build !race

// Without the race detector: it empties pools at random.

package match

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func TestLookupDoesNotAllocate(t *testing.T) {
	table := tableByHost(t, 100)
	edit := table.Edit()
	regexes := numbered(1000, "/re")
	regexes.Rules[1].Matches[0] = &config.Match{
		Path:        &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION, Value: "/re/[a-z]+(/.*)?"},
		Method:      "GET",
		Headers:     []*config.ValueMatch{{Name: "accept", Value: "value.*", RegularExpression: true}, {Name: "x-twice", Value: "a,(b|c)", RegularExpression: true}, {Name: "x-twice", Value: "a, b"}, {Name: "host", Value: "re.example.com"}},
		QueryParams: []*config.ValueMatch{{Name: "page", Value: "2"}, {Name: "sort", Value: "na(me|ture)", RegularExpression: true}, {Name: "q s", Value: "x y.", RegularExpression: true}},
	}
	edit.Add(compile(t, regexes), effective("re.example.com"))
	edit.Add(compile(t, numbered(2000, "/deep/er/still")), effective("*.wild.example.com"))

	regexRequest := browserRequest("re.example.com", "/re/abc/def")
	regexRequest.Query = []byte("page=%32&sort=name&q+s=x%20y%21")
	regexRequest.Header.Add([]byte("X-Twice"), []byte("a"))
	regexRequest.Header.Add([]byte("x-tWICE"), []byte("b"))
	edit.Add(compile(t, &config.Route{Key: "HTTPRoute/a/upgrade", Rules: []*config.Rule{{Matches: one("h:upgrade=websocket", "h:te=trailers", "h:expect~1.*", "h:content-length~[0-9]+")}}}), effective("consumed.example.com"))
	table = edit.Table()
	consumed := browserRequest("consumed.example.com", "/")
	consumed.Consumed = &message.Consumed{Upgrade: []byte("websocket"), Length: []byte("3"), TETrailers: true, ExpectContinue: true}
	for name, req := range map[string]*message.Request{
		"prefix":   browserRequest(hostname(7), "/api/v1/users"),
		"exact":    browserRequest(hostname(7), "/api/health"),
		"wildcard": browserRequest("a.b.wild.example.com", "/deep/er/still/x"),
		"regex":    regexRequest,
		"consumed": consumed,
		"none":     browserRequest("nowhere.example.com", "/api"),
	} {
		if got := lookup(table, req) != nil; got == (name == "none") {
			t.Fatalf("%s: found is %v", name, got)
		}
		if n := testing.AllocsPerRun(1000, func() { table.Lookup(req) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestHostsFindDoesNotAllocate(t *testing.T) {
	h := (*Hosts[int])(nil).With("", 1).With("*.example.com", 2).With("*.b.example.com", 3).With("example.com", 4)
	for _, host := range []string{"example.com", "a.b.example.com", "a.example.com", "other.org"} {
		if n := testing.AllocsPerRun(1000, func() { h.Find([]byte(host)) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", host, n)
		}
	}
}
