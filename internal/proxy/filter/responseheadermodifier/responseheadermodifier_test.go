package responseheadermodifier

import (
	"errors"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
)

func compile(t testing.TB, c *config.ResponseHeaderModifier) filter.Filter {
	t.Helper()
	f, err := Compile(c, filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Request != nil || f.Mirror != nil {
		t.Fatal("more than the response is filtered")
	}
	return f
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y filtertest.HeaderFields
		filtertest.Decode(t, e, "responseHeaderModifier", &y)
		f := compile(t, &config.ResponseHeaderModifier{Set: filtertest.Fields(y.Set), Add: filtertest.Fields(y.Add), Remove: y.Remove})
		var x filter.Exchange
		filtertest.Response(&x, e.Before)
		f.Response(&x)
		filtertest.Same(t, "the client gets", filtertest.ResponseText(x.Response.Status, &x.Response.Header), e.After)
	}
}

func TestBadNameIsRefused(t *testing.T) {
	var e *filter.Error
	_, err := Compile(&config.ResponseHeaderModifier{Remove: []string{"a b"}}, filter.Env{})
	if !errors.As(err, &e) || e.Field != "remove[0]" || e.Filter != "ResponseHeaderModifier" {
		t.Errorf("%v", err)
	}
}

var change = &config.ResponseHeaderModifier{
	Set:    []*config.HeaderField{{Name: "Cache-Control", Value: "no-store"}},
	Add:    []*config.HeaderField{{Name: "X-New", Value: "1"}},
	Remove: []string{"x-new"},
}

const response = "HTTP/1.1 200\nServer: app\ncache-control: max-age=60\n"

func BenchmarkResponse(b *testing.B) {
	f := compile(b, change)
	var x filter.Exchange
	filtertest.Response(&x, response)
	b.ReportAllocs()
	for b.Loop() {
		f.Response(&x)
	}
}

func TestAllocations(t *testing.T) {
	f := compile(t, change)
	var x filter.Exchange
	filtertest.Response(&x, response)
	filtertest.AllocatesNothing(t, &x, func(x *filter.Exchange) { f.Response(x) })
}
