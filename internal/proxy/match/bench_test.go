package match

import (
	"fmt"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// numbered is route i of a big table: a rule for a path prefix, with one exact path before it.
func numbered(i int, prefix string) *config.Route {
	name := fmt.Sprintf("route-%d", i)
	return &config.Route{
		Key: "HTTPRoute/default/" + name, Namespace: "default", Name: name, CreatedUnixNano: int64(i),
		Rules: []*config.Rule{
			{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: prefix + "/health"}}}},
			{Index: 1, Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: prefix}}}},
		},
	}
}

func hostname(i int) string { return fmt.Sprintf("host-%d.example.com", i) }

func effective(name string) []*config.Hostname {
	return []*config.Hostname{{Effective: name, Original: name}}
}

// tableByHost has n routes, each for a host of its own.
func tableByHost(tb testing.TB, n int) *Table[string] {
	edit := new(Table[string]).Edit()
	for i := range n {
		edit.Add(compile(tb, numbered(i, "/api")), effective(hostname(i)))
	}
	return edit.Table()
}

// tableByPath has n routes for one host, each for paths of its own.
func tableByPath(tb testing.TB, n int) *Table[string] {
	edit := new(Table[string]).Edit()
	for i := range n {
		edit.Add(compile(tb, numbered(i, fmt.Sprintf("/team/service-%d", i))), effective("example.com"))
	}
	return edit.Table()
}

// browserRequest has the field lines that a browser sends.
func browserRequest(host, path string) *message.Request {
	req := &message.Request{Method: []byte("GET"), Host: []byte(host), MatchHost: []byte(host), Path: []byte(path), Query: []byte("page=2&sort=name"), HasQuery: true}
	for _, name := range []string{"User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Cookie", "Referer", "Cache-Control"} {
		req.Header.Add([]byte(name), []byte("value of "+name))
	}
	return req
}

// benchLookup goes through many requests, so that caches are as cold as in real life.
func benchLookup(b *testing.B, table *Table[string], reqs []*message.Request) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if r, _ := table.Lookup(reqs[i%len(reqs)]); r == nil {
			b.Fatal("no rule")
		}
	}
}

func BenchmarkLookupByHost(b *testing.B) {
	for _, n := range []int{1, 5000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var reqs []*message.Request
			for i := range min(n, 1000) {
				reqs = append(reqs, browserRequest(hostname(i*n/1000), "/api/v1/users/42"))
			}
			benchLookup(b, tableByHost(b, n), reqs)
		})
		// The same request each time: the cost without cache misses.
		b.Run(fmt.Sprint(n, "/warm"), func(b *testing.B) {
			benchLookup(b, tableByHost(b, n), []*message.Request{browserRequest(hostname(n/2), "/api/v1/users/42")})
		})
	}
}

func BenchmarkLookupByPath(b *testing.B) {
	for _, n := range []int{1, 5000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var reqs []*message.Request
			for i := range min(n, 1000) {
				reqs = append(reqs, browserRequest("example.com", fmt.Sprintf("/team/service-%d/v1/users/42", i*n/1000)))
			}
			benchLookup(b, tableByPath(b, n), reqs)
		})
		b.Run(fmt.Sprint(n, "/warm"), func(b *testing.B) {
			benchLookup(b, tableByPath(b, n), []*message.Request{browserRequest("example.com", fmt.Sprintf("/team/service-%d/v1/users/42", n/2))})
		})
	}
}

func BenchmarkLookupPredicates(b *testing.B) {
	route := numbered(0, "/api")
	route.Rules[1].Matches[0].Method = "GET"
	route.Rules[1].Matches[0].Headers = []*config.ValueMatch{{Name: "cache-control", Value: "value of Cache-Control"}}
	route.Rules[1].Matches[0].QueryParams = []*config.ValueMatch{{Name: "sort", Value: "name"}}
	edit := tableByHost(b, 5000).Edit()
	edit.Add(compile(b, route), effective(hostname(0)))
	benchLookup(b, edit.Table(), []*message.Request{browserRequest(hostname(0), "/api/v1/users/42")})
}

// BenchmarkLookupHostile is the dearest request against a table with deep keys.
func BenchmarkLookupHostile(b *testing.B) {
	edit := tableByHost(b, 5000).Edit()
	edit.Add(compile(b, numbered(1<<20, repeat("/a", 100))), effective("*."+repeat("a.", 60)+"com"))
	edit.Add(compile(b, numbered(1<<21, "")), effective(""))
	benchLookup(b, edit.Table(), []*message.Request{browserRequest(repeat("a.", 4000)+"com", repeat("/a", 4000))})
}

func BenchmarkEdit(b *testing.B) {
	tables := map[string]func(testing.TB, int) *Table[string]{"ByHost": tableByHost, "ByPath": tableByPath}
	for _, name := range []string{"ByHost", "ByPath"} {
		for _, n := range []int{1, 5000, 50000} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				table := tables[name](b, n)
				i := n / 2
				route := table.Get(numbered(i, "").Key)
				hostnames := table.routes.find([]byte(route.Config.Key)).hostnames
				b.ReportAllocs()
				for b.Loop() {
					edit := table.Edit()
					edit.Add(route, hostnames)
					table = edit.Table()
				}
			})
		}
	}
}

// BenchmarkEditSamePath has all matches under one path of one host: the list is copied.
func BenchmarkEditSamePath(b *testing.B) {
	edit := new(Table[string]).Edit()
	var last *Route[string]
	for i := range 5000 {
		last = compile(b, numbered(i, "/api"))
		edit.Add(last, effective("example.com"))
	}
	table := edit.Table()
	b.ReportAllocs()
	for b.Loop() {
		edit := table.Edit()
		edit.Add(last, effective("example.com"))
		table = edit.Table()
	}
}

func BenchmarkCompile(b *testing.B) {
	route := numbered(0, "/api")
	b.ReportAllocs()
	for b.Loop() {
		compile(b, route)
	}
}

// BenchmarkBuild is what a start with 5,000 routes costs.
func BenchmarkBuild5000(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		tableByHost(b, 5000)
	}
}

func BenchmarkHostsFind(b *testing.B) {
	for _, n := range []int{1, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var h *Hosts[int]
			for i := range n {
				h = h.With("*."+hostname(i), i)
			}
			host := []byte("www." + hostname(n/2))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := h.Find(host); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}

// BenchmarkLookupByHeader has 5,000 routes for one host and path that differ in a header.
func BenchmarkLookupByHeader(b *testing.B) {
	edit := new(Table[string]).Edit()
	for i := range 5000 {
		route := numbered(i, "/api")
		for _, rule := range route.Rules {
			rule.Matches[0].Headers = []*config.ValueMatch{{Name: "x-tenant", Value: fmt.Sprint("tenant-", i)}}
		}
		edit.Add(compile(b, route), effective("example.com"))
	}
	req := browserRequest("example.com", "/api/v1/users/42")
	req.Header.Add([]byte("X-Tenant"), []byte("tenant-4321"))
	benchLookup(b, edit.Table(), []*message.Request{req})
}
