// Package cors answers preflight requests, and adds the fields to responses that allow scripts of other origins to read
// them (HTTPRoute filter CORS; Fetch, section "CORS protocol"). See README.md.
//
// It must never import another filter's folder.
package cors

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

const name = "CORS"

// Reason words of the replies: to a preflight request of an allowed origin, and of another one.
const (
	Reason        = "preflight"
	ReasonRefused = "preflight_refused"
)

// Names are written as in Fetch, and looked up in any case.
var (
	allowOrigin      = []byte("Access-Control-Allow-Origin")
	allowCredentials = []byte("Access-Control-Allow-Credentials")
	allowMethods     = []byte("Access-Control-Allow-Methods")
	allowHeaders     = []byte("Access-Control-Allow-Headers")
	exposeHeaders    = []byte("Access-Control-Expose-Headers")
	maxAge           = []byte("Access-Control-Max-Age")
	vary             = []byte("Vary")
	contentType      = []byte("Content-Type")

	star            = []byte("*")
	credentialsTrue = []byte("true")
	originName      = []byte("Origin")
	varyPreflight   = []byte("Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
	textPlain       = []byte("text/plain; charset=utf-8")
	refused         = []byte("moongate: 403 " + ReasonRefused + "\n")
)

const (
	requestMethod  = "access-control-request-method"
	requestHeaders = "access-control-request-headers"
)

// policy is a compiled CORS.
type policy struct {
	anyOrigin   bool // allow_origins is "*"
	origins     []origin
	credentials bool
	// The lists as they are sent, nil if empty; "*" alone means any.
	methods, headers, expose []byte
	anyMethod, anyHeader     bool
	exposeAll                bool // "*" is in expose
	maxAge                   []byte
}

// Compile compiles the filter.
func Compile(c *config.CORS, _ filter.Env) (filter.Filter, error) {
	p := &policy{
		credentials: c.GetAllowCredentials(),
		methods:     list(c.GetAllowMethods()), anyMethod: slices.Contains(c.GetAllowMethods(), "*"),
		headers: list(c.GetAllowHeaders()), anyHeader: slices.Contains(c.GetAllowHeaders(), "*"),
		expose: list(c.GetExposeHeaders()), exposeAll: slices.Contains(c.GetExposeHeaders(), "*"),
		maxAge: strconv.AppendUint(nil, uint64(c.GetMaxAgeSeconds()), 10),
	}
	for _, l := range []struct {
		field string
		names []string
	}{{"allow_methods", c.GetAllowMethods()}, {"allow_headers", c.GetAllowHeaders()}, {"expose_headers", c.GetExposeHeaders()}} {
		for i, n := range l.names {
			if !isToken(n) {
				return filter.Filter{}, &filter.Error{Filter: name, Field: l.field + "[" + strconv.Itoa(i) + "]", Problem: strconv.Quote(n) + " is not a token",
					Remedy: "give the name of a method or field (RFC 9110 section 5.6.2)"}
			}
		}
	}
	for i, text := range c.GetAllowOrigins() {
		if text == "*" {
			p.anyOrigin = true
			continue
		}
		o, ok := parsePattern(text)
		if !ok {
			return filter.Filter{}, &filter.Error{Filter: name, Field: "allow_origins[" + strconv.Itoa(i) + "]", Problem: strconv.Quote(text) + " is not an origin",
				Remedy: "give scheme, host and maybe port, such as https://www.example.com"}
		}
		p.origins = append(p.origins, o)
	}
	return filter.Filter{Request: p.request, Response: p.response, Preflights: true}, nil
}

// list returns names as a field value.
func list(names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	return []byte(strings.Join(names, ", "))
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// request answers a preflight request, whatever it asks for: it never reaches a backend.
func (p *policy) request(x *filter.Exchange) *filter.Reply {
	from, sent := x.Request.Header.Get("origin")
	if sent && isPreflight(x.Request) {
		return p.preflight(x, from)
	}
	x.Note(p, from)
	return nil
}

// isPreflight reports whether a request with an Origin is a preflight request.
func isPreflight(r *message.Request) bool {
	if string(r.Method) != "OPTIONS" {
		return false
	}
	_, asks := r.Header.Get(requestMethod)
	return asks
}

func (p *policy) preflight(x *filter.Exchange, from []byte) *filter.Reply {
	if !p.allows(from) {
		reply := x.Reply(403, ReasonRefused)
		reply.Header.Add(contentType, textPlain)
		reply.Header.Add(vary, varyPreflight)
		reply.Body = refused
		return reply
	}
	reply := x.Reply(204, Reason)
	h := &reply.Header
	p.addOrigin(h, from)
	switch asked := &x.Request.Header; {
	case p.anyMethod:
		method, _ := asked.Get(requestMethod)
		h.Add(allowMethods, method)
	case p.methods != nil:
		h.Add(allowMethods, p.methods)
	}
	if p.anyHeader {
		for i := range x.Request.Header.Len() { // "*" would not include Authorization
			if f := x.Request.Header.At(i); message.EqualFold(f.Name, requestHeaders) {
				h.Add(allowHeaders, f.Value)
			}
		}
	} else if _, asks := x.Request.Header.Get(requestHeaders); asks && p.headers != nil {
		h.Add(allowHeaders, p.headers)
	}
	if p.expose != nil && !(p.exposeAll && p.credentials) {
		h.Add(exposeHeaders, p.expose)
	}
	h.Add(maxAge, p.maxAge)
	h.Add(vary, varyPreflight)
	return reply
}

// response replaces the backend's fields about cross-origin requests.
func (p *policy) response(x *filter.Exchange) {
	from, noted := x.Noted(p)
	if !noted { // an earlier filter has answered, or this one has answered a preflight request
		var sent bool
		if from, sent = x.Request.Header.Get("origin"); sent && isPreflight(x.Request) {
			return
		}
	}
	h := &x.Response.Header
	h.RemoveIf(isCORS)
	if !p.sameForAll() {
		varyByOrigin(h)
		if !p.allows(from) {
			return
		}
	}
	exposed := p.expose
	if p.exposeAll && p.credentials { // with credentials "*" would be the name of a field
		exposed = appendNames(x)
	}
	p.addOrigin(h, from)
	if len(exposed) > 0 {
		h.Add(exposeHeaders, exposed)
	}
}

// sameForAll reports whether responses are the same whatever the origin. They are also the same without an Origin, so
// that a cache may use its copy for all clients.
func (p *policy) sameForAll() bool { return p.anyOrigin && !p.credentials }

// addOrigin allows the origin to read the response.
func (p *policy) addOrigin(h *message.Fields, from []byte) {
	if p.sameForAll() {
		h.Add(allowOrigin, star)
		return
	}
	h.Add(allowOrigin, from)
	if p.credentials {
		h.Add(allowCredentials, credentialsTrue)
	}
}

const corsPrefix = "access-control-"

func isCORS(f *message.Field) bool {
	return len(f.Name) > len(corsPrefix) && message.EqualFold(f.Name[:len(corsPrefix)], corsPrefix)
}

// varyByOrigin adds Origin to Vary if it is missing.
func varyByOrigin(h *message.Fields) {
	for i := range h.Len() {
		f := h.At(i)
		if !message.EqualFoldBytes(f.Name, vary) {
			continue
		}
		for rest, more := f.Value, true; more; {
			var field []byte
			field, rest, more = bytes.Cut(rest, []byte(","))
			if field = bytes.TrimSpace(field); message.EqualFoldBytes(field, originName) || string(field) == "*" {
				return
			}
		}
	}
	h.Add(vary, originName)
}

// appendNames returns a list of the names of the response's fields.
func appendNames(x *filter.Exchange) []byte {
	start := len(x.Scratch)
	for i := range x.Response.Header.Len() {
		f := x.Response.Header.At(i)
		if message.EqualFold(f.Name, "set-cookie") { // no script may read it
			continue
		}
		if len(x.Scratch) > start {
			x.Scratch = append(x.Scratch, ", "...)
		}
		x.Scratch = append(x.Scratch, f.Name...)
	}
	return x.Made(start)
}
