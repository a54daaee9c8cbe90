// Package externalauth asks an authorization server whether a request may go on
// (HTTPRoute filter ExternalAuth, GEP-1494): by HTTP, or by the gRPC protocol of
// Envoy's external authorization. What the server says about header fields it does
// to the request and the response. Nothing but its word lets a request pass. See
// README.md.
//
// It must never import another filter's folder.
package externalauth

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

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

// maxDenial bounds what clients are sent of a denial, in bytes of fields and body together: it is held until they have taken it.
const maxDenial = 64 << 10

// auth is the compiled filter.
type auth struct {
	backend         *upstream.Backend
	authority       []byte // by gRPC
	path            []byte // by HTTP
	requestHeaders  []string
	responseHeaders []string
	maxBody         int64
	seesAll         bool // the server is sent all fields of the header
}

// Compile makes the filter.
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
			if !config.IsToken(strings.TrimPrefix(n, ":")) || n != strings.ToLower(n) { // with a colon by gRPC
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

// request lets the request pass by returning nil, which is done in askHTTP and askGRPC alone.
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

// decideJudged keeps the fields that the server judges out of the trailer section, which it does not see.
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

// askHTTP sends the server the request's head, and with forwardBody its body, and lets the request pass where the answer is 200.
func (a *auth) askHTTP(x *filter.Exchange, body []byte) *filter.Reply {
	r := x.Request
	// A CONNECT cannot be sent to the server as it is: the server would have to open a tunnel. Sent with another method it might be allowed where a tunnel would not.
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

// reasonOf is why the request does not go on where a call has failed.
func reasonOf(err error) string {
	if errors.Is(err, filter.ErrLoop) {
		return looped
	}
	return failed
}

// pathOf is the path that the server is sent for that of the request.
func (a *auth) pathOf(path []byte) []byte {
	switch {
	case len(path) == 0 || path[0] != '/': // of OPTIONS *, which servers answer by themselves, whoever asks
		return slices.Concat(a.path, []byte("/"))
	case len(a.path) == 0:
		return path
	}
	return slices.Concat(a.path, path)
}

// sendsHTTP reports whether the server is sent fields of the name by HTTP. CDN-Loop is one of them, so that a server which can be reached by this
// gateway alone, and whose own route asks it again, does not go round for ever.
func (a *auth) sendsHTTP(n []byte) bool {
	return message.EqualFold(n, "authorization") || message.EqualFold(n, "cdn-loop") || has(a.requestHeaders, n)
}

// unseen reports whether a field is one that the server is not sent, and that CGI-like servers take for one which it is: the backend would go by what nobody has
// judged.
func (a *auth) unseen(f *message.Field) bool {
	if bytes.IndexByte(f.Name, '_') < 0 || has(a.requestHeaders, f.Name) {
		return false
	}
	for _, n := range a.requestHeaders {
		if message.EqualFoldHyphens(f.Name, []byte(n)) {
			return true
		}
	}
	return false
}

// has reports whether a list of names in lower case has the name.
func has(list []string, n []byte) bool {
	for _, s := range list {
		if message.EqualFold(n, s) {
			return true
		}
	}
	return false
}

// takeListed puts those fields of the answer that are asked for into the request. What the client has sent under their names, or under those that CGI-like
// servers take for them, goes in any case: they are the server's to say.
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

// takeAll puts all fields of the answer into the request, in place of the client's, but for those that tell of the answer itself.
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

// takes reports whether a field of an answer is put into requests without being asked for. Those that describe the answer's body would misdescribe the request's
// (RFC 9110 section 8), and GEP-1494 leaves out Authority.
func takes(n string) bool {
	return changeable(n) && !strings.HasPrefix(n, "content-") && n != "date" && n != "authority"
}

// unchangeable reports whether fields of a name in lower case, in any spelling that servers may take for it, are the engine's. Which route a request has is
// decided by its host, so that this stays too.
func unchangeable(n string) bool {
	n = strings.ReplaceAll(n, "_", "-")
	return n == "host" || headermodifier.Reserved(n)
}

// changeable reports whether a server may set and remove fields of the name, which is in lower case.
func changeable(n string) bool { return config.IsToken(n) && !unchangeable(n) }

// removeLike removes the fields of a name in lower case, and of those that differ from it in underscores and hyphens.
func removeLike(fields *message.Fields, n string) {
	name := []byte(n)
	fields.RemoveIf(func(f *message.Field) bool { return message.EqualFoldHyphens(f.Name, name) })
}

// saysYes reports whether a status tells a client that its request was carried out, or that it has the result already; as a denial that would not be true.
func saysYes(status int) bool {
	return status >= 200 && status < 300 || status == http.StatusNotModified
}

// denyHTTP answers as the server has.
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

// bounded returns a denial that is not too large, else that there is no answer.
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
