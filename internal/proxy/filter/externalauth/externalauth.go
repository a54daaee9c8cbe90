// Package externalauth asks an authorization server whether a request is allowed (HTTPRoute filter ExternalAuth,
// GEP-1494): over HTTP, or with the gRPC protocol of Envoy's external authorization. It applies the header fields in
// the server's answer to the request and the response. A request only passes if the server allows it. See README.md.
//
// It must never import another filter's folder.
package externalauth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/headermodifier"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const name = "ExternalAuth"

// Reasons that requests end with, see observe.Reason.
const (
	denied       = "auth_denied"
	failed       = "auth_failed"
	bodyTooLarge = "body_too_large"
	overloaded   = "overloaded"
	looped       = "loop_detected"
)

// maxDenial is the largest denial that clients are sent, in bytes of fields and body together: it is held until they
// have taken it.
const maxDenial = 64 << 10

// auth is the compiled filter.
type auth struct {
	backend         *upstream.Backend
	authority       []byte // only for gRPC
	path            []byte // only for HTTP
	requestHeaders  []string
	responseHeaders []string
	maxBody         int64
	seesAll         bool // the server is sent all header fields
}

// Compile compiles the filter.
func Compile(c *config.ExternalAuth, env filter.Env) (filter.Filter, error) {
	bad := func(field, problem, remedy string) (filter.Filter, error) {
		return filter.Filter{}, &filter.Error{Filter: name, Field: field, Problem: problem, Remedy: remedy}
	}
	a := &auth{
		backend: env.Backend(c.GetBackend()), authority: []byte(c.GetAuthority()), path: []byte(c.GetPath()),
		requestHeaders: c.GetRequestHeaders(), responseHeaders: c.GetResponseHeaders(), maxBody: c.GetMaxBodyBytes(),
		seesAll: c.GetGrpc() && len(c.GetRequestHeaders()) == 0,
	}
	switch {
	case a.backend == nil:
		return bad("backend", fmt.Sprintf("there is no backend %q", c.GetBackend()), "send the Backend with or before what refers to it")
	case c.GetGrpc() && len(a.authority) == 0:
		return bad("authority", "it is missing", "say how the server is addressed")
	case len(a.path) > 0 && (a.path[0] != '/' || a.path[len(a.path)-1] == '/'):
		return bad("path", fmt.Sprintf("%q does not stand before paths", a.path), "begin it with a slash, and end it without")
	}
	for i, list := range [][]string{a.requestHeaders, a.responseHeaders} {
		for _, n := range list {
			if !config.IsToken(strings.TrimPrefix(n, ":")) || n != strings.ToLower(n) { // with a colon for gRPC
				return bad([]string{"request_headers", "response_headers"}[i], fmt.Sprintf("%q is not the name of a field in lower case", n), "use letters, digits and -")
			}
		}
	}
	f := filter.Filter{Authorizes: a.backend, Request: func(x *filter.Exchange) *filter.Reply { return a.request(x, a.askHTTP) }}
	if c.GetGrpc() {
		f.Request = func(x *filter.Exchange) *filter.Reply { return a.request(x, a.askGRPC) }
		f.Response = a.addResponseHeaders
	}
	return f, nil
}

// request lets the request pass by returning nil, which only askHTTP and askGRPC decide.
func (a *auth) request(x *filter.Exchange, ask func(x *filter.Exchange, body []byte) *filter.Reply) *filter.Reply {
	if x.Engine == nil {
		return x.Fail(failed)
	}
	if len(a.requestHeaders) > 0 {
		x.Request.Header.RemoveIf(a.unseen)
	}
	a.decideJudged(x)
	if a.maxBody == 0 {
		return ask(x, nil)
	}
	body, err := x.Engine.ReadBody(a.maxBody)
	switch {
	case errors.Is(err, filter.ErrBodyTooLarge):
		return x.Fail(bodyTooLarge)
	case errors.Is(err, filter.ErrOverloaded):
		return x.Fail(overloaded)
	case err != nil:
		return x.Fail(failed)
	}
	return ask(x, body)
}

// decideJudged removes the fields that the server checks from the trailer section, which it does not receive.
func (a *auth) decideJudged(x *filter.Exchange) {
	switch {
	case len(a.requestHeaders) > 0:
		for _, n := range a.requestHeaders {
			x.Decide(n)
		}
	case a.seesAll:
		x.DecideAll()
		return
	}
	x.Decide("authorization")
}

// askHTTP sends the request's head to the server, with forwardBody also its body, and lets the request pass if the
// answer is 200.
func (a *auth) askHTTP(x *filter.Exchange, body []byte) *filter.Reply {
	r := x.Request
	// A CONNECT cannot be sent to the server unchanged: the server would have to open a tunnel. With another method it
	// might be allowed although a tunnel would not.
	if string(r.Method) == http.MethodConnect {
		return x.Fail(failed)
	}
	call := &filter.Call{Backend: a.backend, Body: body}
	call.Request = message.Request{Method: r.Method, Host: r.Host, Path: a.pathOf(r.Path), Query: r.Query, HasQuery: r.HasQuery}
	for i := range r.Header.Len() {
		if f := r.Header.At(i); a.sendsHTTP(f.Name) {
			call.Request.Header.Append(*f)
		}
	}
	if err := x.Engine.Call(call); err != nil {
		return x.Fail(reasonOf(err))
	}
	if call.Status != http.StatusOK {
		return denyHTTP(x, call)
	}
	if len(a.responseHeaders) > 0 {
		a.takeListed(x, &call.Header)
	} else {
		takeAll(x, &call.Header)
	}
	return nil
}

// reasonOf returns why the request does not go on after a failed call.
func reasonOf(err error) string {
	if errors.Is(err, filter.ErrLoop) {
		return looped
	}
	return failed
}

// pathOf returns the path for the server, given the request's.
func (a *auth) pathOf(path []byte) []byte {
	switch {
	case len(path) == 0 || path[0] != '/': // for OPTIONS *, which servers answer themselves whatever the client
		return slices.Concat(a.path, []byte("/"))
	case len(a.path) == 0:
		return path
	}
	return slices.Concat(a.path, path)
}

// sendsHTTP reports whether the server is sent fields with the name over HTTP. CDN-Loop is one of them, so that there
// is no infinite loop if the server can only be reached through this gateway, and its own route asks it again.
func (a *auth) sendsHTTP(n []byte) bool {
	return message.EqualFold(n, "authorization") || message.EqualFold(n, "cdn-loop") || has(a.requestHeaders, n)
}

// unseen reports whether a field is not sent to the server but would be taken by CGI-like servers for one that is: the
// backend would use a value that was not checked.
func (a *auth) unseen(f *message.Field) bool {
	like := false
	for _, n := range a.requestHeaders {
		if message.EqualFold(f.Name, n) {
			return false
		}
		like = like || cginame.Same(f.Name, n)
	}
	return like
}

// has reports whether a list of lower-case names contains the name.
func has(list []string, n []byte) bool {
	for _, s := range list {
		if message.EqualFold(n, s) {
			return true
		}
	}
	return false
}

// takeListed copies the configured fields of the answer to the request. The client's fields with these names, or with
// names that CGI-like servers take for them, are removed in any case: only the server sets them.
func (a *auth) takeListed(x *filter.Exchange, answer *message.Fields) {
	request := &x.Request.Header
	for _, n := range a.responseHeaders {
		if !changeable(n) {
			continue
		}
		removeLike(request, n)
		x.Decide(n)
		for i := range answer.Len() {
			if f := answer.At(i); message.EqualFold(f.Name, n) {
				request.Add(f.Name, f.Value)
			}
		}
	}
}

// takeAll copies all fields of the answer to the request, in place of the client's, except those that describe the
// answer itself.
func takeAll(x *filter.Exchange, answer *message.Fields) {
	request := &x.Request.Header
	for i := range answer.Len() {
		n := strings.ToLower(string(answer.At(i).Name))
		if takes(n) {
			removeLike(request, n)
			x.Decide(n)
		}
	}
	for i := range answer.Len() {
		if f := answer.At(i); takes(strings.ToLower(string(f.Name))) {
			request.Add(f.Name, f.Value)
		}
	}
}

// takes reports whether a field of an answer is copied to requests without being configured. Fields that describe the
// answer's body would misdescribe the request's (RFC 9110 section 8), and GEP-1494 excludes Authority.
func takes(n string) bool {
	return changeable(n) && !strings.HasPrefix(n, "content-") && n != "date" && n != "authority"
}

// unchangeable reports whether fields with a lower-case name, or one that CGI-like servers take it for, belong to the
// engine. The host has decided the route, so it is one of them.
func unchangeable(n string) bool { return n == "host" || headermodifier.Reserved(n) }

// changeable reports whether a server may set and remove fields with the name, which must be in lower case.
func changeable(n string) bool { return config.IsToken(n) && !unchangeable(n) }

// removeLike removes the fields with the name, and those that CGI-like servers take for them.
func removeLike(fields *message.Fields, n string) {
	fields.RemoveIf(func(f *message.Field) bool { return cginame.Same(f.Name, n) })
}

// saysYes reports whether a status means to a client that its request was carried out, or that it already has the
// result, which is wrong for a denial.
func saysYes(status int) bool {
	return status >= 200 && status < 300 || status == http.StatusNotModified
}

// denyHTTP returns the server's answer as a reply.
func denyHTTP(x *filter.Exchange, call *filter.Call) *filter.Reply {
	if call.Status >= 500 {
		return x.Fail(failed)
	}
	reply := x.Reply(call.Status, denied)
	if saysYes(call.Status) {
		reply.Status = http.StatusForbidden
	}
	for i := range call.Header.Len() {
		if f := call.Header.At(i); !unchangeable(strings.ToLower(string(f.Name))) {
			reply.Header.Add(f.Name, f.Value)
		}
	}
	reply.Body = call.Content
	return bounded(x, reply)
}

// bounded returns a denial that is not too large, otherwise a failure.
func bounded(x *filter.Exchange, reply *filter.Reply) *filter.Reply {
	size := len(reply.Body)
	for i := range reply.Header.Len() {
		f := reply.Header.At(i)
		size += len(f.Name) + len(f.Value)
	}
	if size > maxDenial {
		return x.Fail(failed)
	}
	return reply
}
