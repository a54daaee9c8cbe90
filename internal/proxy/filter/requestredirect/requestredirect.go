// Package requestredirect answers a request with a redirect (HTTPRoute filter RequestRedirect). See README.md.
//
// It must never import another filter's folder.
package requestredirect

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/pathmodifier"
)

const name = "RequestRedirect"

// Reason is the reason word of the replies.
const Reason = "redirect"

// badRequest is the reason word if the location cannot be determined.
const badRequest = "bad_request"

var location = []byte("Location")

// redirect is a compiled RequestRedirect.
type redirect struct {
	status int
	scheme string // "" means the request's
	host   []byte // nil means the request's
	port   uint16 // 0 means that it is derived
	path   pathmodifier.Modifier
}

// Compile compiles the filter.
func Compile(c *config.RequestRedirect, _ filter.Env) (filter.Filter, error) {
	fail := func(field, problem, remedy string) (filter.Filter, error) {
		return filter.Filter{}, &filter.Error{Filter: name, Field: field, Problem: problem, Remedy: remedy}
	}
	r := redirect{status: int(c.GetStatusCode()), scheme: c.GetScheme(), port: uint16(c.GetPort())}
	switch r.status {
	case 0:
		r.status = 302
	case 301, 302, 303, 307, 308:
	default:
		return fail("status_code", fmt.Sprintf("%d is not a redirect", r.status), "use 301, 302, 303, 307 or 308")
	}
	if r.scheme != "" && r.scheme != "http" && r.scheme != "https" {
		return fail("scheme", fmt.Sprintf("%q is not known", r.scheme), "use http or https")
	}
	if c.GetPort() > 65535 {
		return fail("port", fmt.Sprintf("%d is not a port", c.GetPort()), "use 1 to 65535")
	}
	var err error
	if c.GetHostname() != "" {
		if r.host, err = filter.Host(c.GetHostname()); err != nil {
			return fail("hostname", err.Error(), "give a hostname without a port")
		}
	}
	if r.path, err = pathmodifier.Compile(name, c.GetPath()); err != nil {
		return filter.Filter{}, err
	}
	return filter.Filter{Request: r.reply}, nil
}

func (r *redirect) reply(x *filter.Exchange) *filter.Reply {
	if r.host == nil && len(withoutPort(x.Request.Host)) == 0 && r.leaves(x) {
		return x.Fail(badRequest)
	}
	start := len(x.Scratch)
	x.Scratch = r.appendLocation(x.Scratch, x)
	reply := x.Reply(r.status, Reason)
	reply.Header.Add(location, x.Made(start))
	return reply
}

func (r *redirect) appendLocation(dst []byte, x *filter.Exchange) []byte {
	scheme, host := r.scheme, r.host
	if scheme == "" {
		scheme = x.Scheme
	}
	if host == nil {
		host = withoutPort(x.Request.Host)
	}
	// HTTP/1.0 needs no Host; only a reference without authority (RFC 9110 section 10.2.2) is possible then.
	if len(host) > 0 {
		dst = append(append(dst, scheme...), "://"...)
		dst = append(dst, host...)
		if port := r.portOf(scheme, x.ListenerPort); port != 0 {
			dst = strconv.AppendUint(append(dst, ':'), uint64(port), 10)
		}
	}
	at := len(dst)
	dst = r.path.Append(dst, x.Request.Path)
	if len(host) == 0 {
		// "//a" would name a host
		path := dst[at:]
		dst = append(dst[:at+1], bytes.TrimLeft(path, "/")...)
	}
	if x.Request.HasQuery {
		dst = pathmodifier.AppendEscaped(append(dst, '?'), x.Request.Query)
	}
	return dst
}

// leaves reports whether the redirect is to another scheme or port than the request's, which requires an authority:
// without one the client would come back.
func (r *redirect) leaves(x *filter.Exchange) bool {
	scheme := cmp.Or(r.scheme, x.Scheme)
	return scheme != x.Scheme || r.portOf(scheme, x.ListenerPort) != (&redirect{}).portOf(scheme, x.ListenerPort)
}

// portOf returns the port to write, 0 for none: the configured one; otherwise the well-known one of the configured
// scheme; otherwise the listener's. The well-known port of the scheme is omitted.
func (r *redirect) portOf(scheme string, listener uint16) uint16 {
	port := r.port
	if port == 0 {
		if r.scheme != "" {
			return 0
		}
		port = listener
	}
	if scheme == "http" && port == 80 || scheme == "https" && port == 443 {
		return 0
	}
	return port
}

// withoutPort removes the port from an authority.
func withoutPort(host []byte) []byte {
	if len(host) > 0 && host[0] == '[' {
		if end := bytes.IndexByte(host, ']'); end >= 0 {
			return host[:end+1]
		}
		return nil
	}
	if colon := bytes.IndexByte(host, ':'); colon >= 0 {
		return host[:colon]
	}
	return host
}
