package externalauth

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/externalauth/extauthz"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const key = "Service/default/auth/8080"

func env(t testing.TB) filter.Env {
	t.Helper()
	set := upstream.NewSet(upstream.Options{})
	t.Cleanup(set.Close)
	backend := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}}
	if err := set.Apply([]*config.Resource{backend}, nil); err != nil {
		t.Fatal(err)
	}
	return filter.Env{Backend: set.Get}
}

func compile(t testing.TB, c *config.ExternalAuth) filter.Filter {
	t.Helper()
	c.Backend = key
	f, err := Compile(c, env(t))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// engine answers calls by a function.
type engine struct {
	answer func(*filter.Call) error
	body   []byte
}

func (e *engine) Call(c *filter.Call) error { return e.answer(c) }

func (e *engine) ReadBody(limit int64) ([]byte, error) {
	if int64(len(e.body)) > limit {
		return nil, filter.ErrBodyTooLarge
	}
	return e.body, nil
}

func (e *engine) BodyLength() int64 { return int64(len(e.body)) }

func (e *engine) ClientInfo() filter.Client {
	return filter.Client{Address: netip.MustParseAddrPort("192.0.2.1:1234"), Local: netip.MustParseAddr("192.0.2.2"), Protocol: "HTTP/2.0", ServerName: []byte("www.example.com")}
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y struct {
			Protocol   string
			BackendRef struct {
				Name string
				Port int32
			} `yaml:"backendRef"`
			HTTP struct {
				Path                   string
				AllowedResponseHeaders []string `yaml:"allowedResponseHeaders"`
			} `yaml:"http"`
		}
		filtertest.Decode(t, e, "externalAuth", &y)
		c := &config.ExternalAuth{Path: y.HTTP.Path}
		for _, n := range y.HTTP.AllowedResponseHeaders {
			c.ResponseHeaders = append(c.ResponseHeaders, strings.ToLower(n))
		}
		f := compile(t, c)
		x := filtertest.Exchange(e.Before)
		x.Engine = &engine{answer: func(c *filter.Call) error {
			if got := string(c.Request.Method) + " " + string(c.Request.Path); got != "GET /check/cart" || c.Request.Header.Len() != 1 {
				t.Errorf("the server is asked %s", got)
			}
			c.Status = 200
			c.Header.Add([]byte("X-User"), []byte("alice"))
			return nil
		}}
		if reply := f.Request(x); reply != nil {
			t.Fatalf("%+v", reply)
		}
		filtertest.Same(t, "request", filtertest.Request(x), e.After)
	}
}

func TestRefused(t *testing.T) {
	for field, c := range map[string]*config.ExternalAuth{
		"backend":          {Backend: "Service/default/other/80"},
		"authority":        {Backend: key, Grpc: true},
		"path":             {Backend: key, Path: "check"},
		"request_headers":  {Backend: key, RequestHeaders: []string{"X-User"}},
		"response_headers": {Backend: key, ResponseHeaders: []string{"a b"}},
	} {
		var e *filter.Error
		if _, err := Compile(c, env(t)); !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestFailsClosed: without an engine, an answer or room for the body nothing passes.
func TestFailsClosed(t *testing.T) {
	f := compile(t, &config.ExternalAuth{MaxBodyBytes: 3})
	for reason, e := range map[string]filter.Engine{
		failed:       &engine{answer: func(*filter.Call) error { return errors.New("no") }},
		bodyTooLarge: &engine{body: []byte("four")},
	} {
		x := filtertest.Exchange("GET / HTTP/1.1\nHost: h\n")
		x.Engine = e
		if reply := f.Request(x); reply == nil || reply.Status != 0 || reply.Reason != reason {
			t.Errorf("%s: %+v", reason, reply)
		}
	}
	if reply := f.Request(filtertest.Exchange("GET / HTTP/1.1\nHost: h\n")); reply == nil || reply.Reason != failed {
		t.Errorf("without an engine: %+v", reply)
	}
}

// TestUnseen: a field that a backend may take for one that the server was sent does not reach it beside that.
func TestUnseen(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		c := &config.ExternalAuth{Grpc: grpc, RequestHeaders: []string{"x-api-key", "x_own", "x.two", "x-two"}}
		if grpc {
			c.Authority = "a"
		}
		f := compile(t, c)
		x := filtertest.Exchange("GET / HTTP/1.1\nHost: h\nX-Api-Key: good\nX_Api-Key: forged\nx_api_key: forged\nX.Api.Key: forged\nX-Own: forged\nX~Own: forged\nX_Own: 1\nX.Two: 3\nX-Two: 4\nX_Other: 2\nX.Other: 2\n")
		x.Engine = &engine{answer: func(c *filter.Call) error { return errors.New("no") }}
		f.Request(x)
		want := filtertest.Request(filtertest.Exchange("GET / HTTP/1.1\nHost: h\nX-Api-Key: good\nX_Own: 1\nX.Two: 3\nX-Two: 4\nX_Other: 2\nX.Other: 2\n"))
		filtertest.Same(t, "request", filtertest.Request(x), want)
	}
}

// TestTaken: fields that a backend may take for one that the server sets or removes are the server's to decide, whatever
// it answers.
func TestTaken(t *testing.T) {
	const user = "GET / HTTP/1.1\nHost: h\nX-User: root\nX_User: root\nX.User: root\nx'user: root\nX.Users: 1\n"
	for _, c := range []struct {
		name   string
		listed []string
		answer string // the name of the field in the answer
		want   string
	}{
		{"listed, and set", []string{"x-user"}, "X-User", "X.Users: 1\nX-User: alice\n"},
		{"listed, and not set", []string{"x-user"}, "X-Other", "X.Users: 1\n"},
		{"not listed, and set", nil, "X-User", "X.Users: 1\nX-User: alice\n"},
		{"with a dot", []string{"x.user"}, "x.user", "X.Users: 1\nx.user: alice\n"},
	} {
		x := filtertest.Exchange(user)
		x.Engine = &engine{answer: func(call *filter.Call) error {
			call.Status = 200
			call.Header.Add([]byte(c.answer), []byte("alice"))
			return nil
		}}
		if reply := compile(t, &config.ExternalAuth{ResponseHeaders: c.listed}).Request(x); reply != nil {
			t.Fatalf("%s: %+v", c.name, reply)
		}
		filtertest.Same(t, c.name, filtertest.Request(x), "GET / HTTP/1.1\nHost: h\n"+c.want)
		if c.answer != "X-Other" && (!x.Decided([]byte("X~User")) || x.Decided([]byte("X.Users"))) {
			t.Errorf("%s: trailer fields are not decided on as the header is", c.name)
		}
	}
}

// TestConnect: a CONNECT cannot be asked about by HTTP, and does not pass; the server is not asked, so that it does not count as one that fails.
func TestConnect(t *testing.T) {
	f := compile(t, &config.ExternalAuth{})
	x := filtertest.Exchange("CONNECT h:443 HTTP/1.1\nHost: h:443\n")
	x.Engine = &engine{answer: func(c *filter.Call) error {
		t.Errorf("the server is asked %s %s", c.Request.Method, c.Request.Path)
		c.Status = 200
		return nil
	}}
	if reply := f.Request(x); reply == nil || reply.Reason != failed {
		t.Errorf("%+v", reply)
	}
}

// request is what every answer is tried on.
func request() *filter.Exchange {
	return filtertest.Exchange("GET /p?token=t&x=1 HTTP/1.1\nHost: www.example.com\nX-User: root\nX_User: root\nX.User: root\nCDN-Loop: moongate\n")
}

// FuzzAnswer: whatever a server answers by gRPC, a request passes only with status 0, and neither it nor the response has fields that belong to the connection or
// could end a line.
func FuzzAnswer(f *testing.F) {
	for _, r := range []*extauthz.CheckResponse{
		{Status: &extauthz.Status{}},
		{Status: &extauthz.Status{}, HttpResponse: &extauthz.CheckResponse_OkResponse{OkResponse: &extauthz.OKHTTPResponse{
			Headers:              []*extauthz.HeaderValueOption{{Header: &extauthz.HeaderValue{Key: "X-User", Value: "alice"}}, {Header: &extauthz.HeaderValue{Key: "Host", Value: "h"}}},
			ResponseHeadersToAdd: []*extauthz.HeaderValueOption{{Header: &extauthz.HeaderValue{Key: "x-a", RawValue: []byte("b")}, AppendAction: extauthz.AppendAction_ADD_IF_ABSENT}},
			HeadersToRemove:      []string{"cdn-loop"}, QueryParametersToRemove: []string{"token"},
		}}},
		{Status: &extauthz.Status{Code: 7}, HttpResponse: &extauthz.CheckResponse_DeniedResponse{DeniedResponse: &extauthz.DeniedHTTPResponse{
			Status: &extauthz.HTTPStatus{Code: 200}, Headers: []*extauthz.HeaderValueOption{{Header: &extauthz.HeaderValue{Key: "Transfer-Encoding", Value: "chunked"}}}}}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...))
	}
	auth := compile(f, &config.ExternalAuth{Grpc: true, Authority: "a"})
	f.Fuzz(func(t *testing.T, content []byte) {
		x := request()
		x.Response = &message.Response{}
		x.Engine = &engine{answer: func(c *filter.Call) error {
			c.Status, c.Content = 200, content
			c.Header.Add([]byte("content-type"), []byte("application/grpc"))
			c.Trailer.Add([]byte("grpc-status"), []byte("0"))
			return nil
		}}
		reply := auth.Request(x)
		var answer extauthz.CheckResponse
		const prefix = 5
		decoded := len(content) >= prefix && proto.Unmarshal(content[prefix:], &answer) == nil
		if reply == nil && (!decoded || answer.GetStatus().GetCode() != 0) {
			t.Fatalf("%v passes", &answer)
		}
		if reply != nil && reply.Status != 0 && (reply.Status < 200 || reply.Status > 599) {
			t.Fatalf("status %d", reply.Status)
		}
		if loop, _ := x.Request.Header.Get("cdn-loop"); string(loop) != "moongate" {
			t.Errorf("CDN-Loop: %q", loop)
		}
		auth.Response(x)
		checkFields(t, &x.Request.Header)
		checkFields(t, &x.Response.Header)
		if reply != nil {
			checkFields(t, &reply.Header)
		}
		if strings.ContainsAny(string(x.Request.Query), " \r\n#") {
			t.Errorf("query %q", x.Request.Query)
		}
	})
}

func checkFields(t *testing.T, h *message.Fields) {
	t.Helper()
	for i := range h.Len() {
		n, value := string(h.At(i).Name), string(h.At(i).Value)
		if !config.IsToken(n) || strings.ContainsAny(value, "\r\n\x00") || strings.Trim(value, " \t") != value {
			t.Errorf("%q: %q", n, value)
		}
		switch string(cginame.Append(nil, n)) {
		case "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect":
			t.Errorf("%s was set", n)
		}
	}
}

// TestSet: append and append_action say what becomes of fields that are there.
func TestSet(t *testing.T) {
	for _, c := range []struct {
		option *extauthz.HeaderValueOption
		want   string
	}{
		{&extauthz.HeaderValueOption{}, "new"},
		{&extauthz.HeaderValueOption{AppendAction: extauthz.AppendAction_ADD_IF_ABSENT}, "old"},
		{&extauthz.HeaderValueOption{AppendAction: extauthz.AppendAction_OVERWRITE_IF_EXISTS}, "new"},
		{&extauthz.HeaderValueOption{AppendAction: extauthz.AppendAction_OVERWRITE_IF_EXISTS_OR_ADD}, "new"},
	} {
		c.option.Header = &extauthz.HeaderValue{Key: "X-A", Value: "new"}
		var h message.Fields
		h.Add([]byte("x-a"), []byte("old"))
		if err := change(&h, []*extauthz.HeaderValueOption{c.option}, override); err != nil {
			t.Fatal(err)
		}
		if v, _ := h.Get("x-a"); string(v) != c.want || h.Len() != 1 {
			t.Errorf("%v: %s, %d fields", c.option, v, h.Len())
		}
		var empty message.Fields
		if err := change(&empty, []*extauthz.HeaderValueOption{c.option}, override); err != nil {
			t.Fatal(err)
		}
		if want := c.option.AppendAction != extauthz.AppendAction_OVERWRITE_IF_EXISTS; (empty.Len() == 1) != want {
			t.Errorf("%v: %d fields where there was none", c.option, empty.Len())
		}
	}
}

// TestDenialFields: of several fields of a name all reach a client that is denied, unless the server says that one takes the place of those before it.
func TestDenialFields(t *testing.T) {
	option := func(n, value string) *extauthz.HeaderValueOption {
		return &extauthz.HeaderValueOption{Header: &extauthz.HeaderValue{Key: n, Value: value}}
	}
	said, replacing, absent := option("Link", "</b>"), option("X-Why", "two"), option("X-Why", "three")
	said.Append = wrapperspb.Bool(false)
	replacing.AppendAction, absent.AppendAction = extauthz.AppendAction_OVERWRITE_IF_EXISTS_OR_ADD, extauthz.AppendAction_ADD_IF_ABSENT
	x := request()
	reply := denyGRPC(x, &extauthz.DeniedHTTPResponse{Status: &extauthz.HTTPStatus{Code: 401}, Body: "{}", Headers: []*extauthz.HeaderValueOption{
		option("WWW-Authenticate", "Bearer"), option("WWW-Authenticate", "Basic"), option("Link", "</a>"), said,
		option("X-Why", "one"), replacing, absent, option("Content-Type", "application/json"),
	}})
	var got []string
	for i := range reply.Header.Len() {
		got = append(got, string(reply.Header.At(i).Name)+": "+string(reply.Header.At(i).Value))
	}
	want := []string{"www-authenticate: Bearer", "www-authenticate: Basic", "link: </a>", "link: </b>", "x-why: two", "content-type: application/json"}
	if reply.Status != 401 || !slices.Equal(got, want) {
		t.Errorf("%d %q", reply.Status, got)
	}
}

// TestTakes: all that an answer has goes into the request, but for what describes the answer, or would change whom the request is for.
func TestTakes(t *testing.T) {
	for name, want := range map[string]bool{
		"x-user": true, "authorization": true, "cookie": true, "x-authority": true,
		"authority": false, "host": false, "date": false, "content-type": false, "content-length": false, "content.length": false, "keep~alive": false, "connection": false, "x_user": true, "x.user": true,
	} {
		if takes(name) != want {
			t.Errorf("takes(%q) = %t", name, !want)
		}
	}
}
