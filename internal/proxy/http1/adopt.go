package http1

import "github.com/moongate-dev/moongate/internal/proxy/message"

// Adopt fills req with the method, scheme, authority and path of a request in another version of HTTP, where they are
// pseudo-header fields, by the rules of ParseRequest, so that they have the same meaning for routing. path begins with
// "/", or is "*" for OPTIONS, or empty for CONNECT. req.Header and h.Consumed are empty afterwards, for the caller to
// fill. The error is an *Error; it does not affect the connection.
func (h *RequestHead) Adopt(method, scheme, authority, path []byte, req *message.Request, lim *Limits) (err error) {
	req.Reset()
	h.reset()
	req.Consumed = &h.Consumed
	switch {
	case len(method) > maxMethod:
		return errMethodLong
	case !isTokenAll(method):
		return errMethod
	case len(path) > lim.target():
		return errTargetLong
	}
	req.Method = method
	if string(method) == "CONNECT" && len(path) == 0 {
		return h.authorityForm(authority, req)
	}
	if !is(scheme, "http") && !is(scheme, "https") {
		return errTargetScheme
	}
	req.Host = authority
	if req.MatchHost, _, err = h.matchHost(authority); err != nil {
		return err
	}
	if len(path) == 0 {
		return errTarget
	}
	for _, c := range path {
		if class[c]&isTarget == 0 {
			return errTarget
		}
	}
	if path[0] == '/' {
		return h.path(path, req)
	}
	if string(path) == "*" && string(method) == "OPTIONS" {
		h.Form, req.Path = Asterisk, asteriskPath
		return nil
	}
	return errTargetForm
}
