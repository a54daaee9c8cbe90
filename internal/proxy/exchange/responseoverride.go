package exchange

import (
	"bytes"
	"net/http"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// A response is overridden before the response filters run: a backend's response once it is certain that no retry
// follows, and a response of the gateway if a rule was found. An overridden response is not checked again.

// maxOverrideValue is the largest number of bytes of the request that one operator adds to a body, so that a client
// cannot make the response much larger than its request.
const maxOverrideValue = 1 << 10

var locationName = []byte("Location")

// contentFields describe the content of a response, and are not valid for other content. Framing fields are not among
// them.
var contentFields = []string{
	"accept-ranges", "content-digest", "content-disposition", "content-encoding", "content-language", "content-location", "content-md5", "content-range", "content-type",
	"digest", "etag", "last-modified", "repr-digest", "trailer",
}

func describesContent(f *message.Field) bool {
	for _, name := range contentFields {
		if message.EqualFold(f.Name, name) {
			return true
		}
	}
	return false
}

// sentTarget is the target that a client has sent, before the filters of the rule.
type sentTarget struct {
	path, query []byte
	hasQuery    bool
}

// keepTarget records the target for rules whose responses may refer to it.
func (x *Exchange) keepTarget() { x.ensureRare().target = sentTarget{x.Path, x.Query, x.HasQuery} }

// matchOverride returns the override for the response whose head is in x.resp, nil if there is none. local means that
// the gateway has made the response. Responses of gRPC are not changed: their clients read the outcome from other
// fields and cannot follow a redirect.
func (x *Exchange) matchOverride(local bool) *snapshot.ResponseOverride {
	if x.rule == nil || x.rule.ResponseOverrides == nil || x.resp.Status == http.StatusSwitchingProtocols {
		return nil
	}
	if !local && x.opensTunnel() {
		return nil // a tunnel follows, whatever the status is
	}
	if x.grpc {
		if value, _ := x.resp.Header.Get("content-type"); local || bytes.HasPrefix(value, grpcType) {
			return nil
		}
	}
	o := x.rule.ResponseOverrides.Match(&x.resp, local)
	if o != nil && x.grpc && o.Redirect != nil {
		return nil
	}
	return o
}

// override applies o to the head in x.resp. replaced reports whether body replaces the body of the response. reason is
// that of the response.
func (x *Exchange) override(o *snapshot.ResponseOverride, reason observe.Reason) (body []byte, replaced bool) {
	if o.Redirect != nil {
		return nil, x.overrideByRedirect(o)
	}
	was := x.resp.Status
	x.rec.OverriddenStatus = uint16(was)
	header := &x.resp.Header
	status := was
	if o.Status != 0 && !(o.Status < 300 && x.wantsTunnel()) {
		status = o.Status
	}
	// Each status without content has its own framing, so the framing of another status must not be kept.
	if replaced = o.Body != nil || status != was && (hasNoContent(status) || hasNoContent(was)); replaced {
		header.RemoveIf(describesContent)
	}
	if o.Body != nil && !hasNoContent(status) {
		body = x.overrideBody(o.Body, status, reason)
	}
	switch {
	case o.ContentType != nil:
		header.Set(contentTypeName, o.ContentType)
	case len(body) > 0:
		header.Set(contentTypeName, textPlain)
	}
	if x.resp.Status = status; status != was {
		start := len(x.fx.Scratch)
		x.fx.Scratch = append(x.fx.Scratch, http.StatusText(status)...)
		x.resp.Reason = x.fx.Made(start)
	}
	if x.grpc && replaced {
		x.makeGRPC(body)
		body = nil
	}
	if o.Header != nil {
		x.fx.Response = &x.resp
		o.Header(&x.fx)
	}
	if o.Body != nil && o.Body.Asks && len(body) > 0 {
		x.ensureRare().contentType, _ = header.Get("content-type")
	}
	return body, replaced
}

// overrideByRedirect turns the head in x.resp into a redirect relative to the target that the client has sent, and
// reports whether it can. It cannot for an HTTP/1.0 client that has sent no Host.
func (x *Exchange) overrideByRedirect(o *snapshot.ResponseOverride) bool {
	sent := x.Request.Request // the rule's filters may have changed it
	sent.Host = x.rec.Host
	t := x.rare.target
	sent.Path, sent.Query, sent.HasQuery = t.path, t.query, t.hasQuery
	x.fx.Request = &sent
	reply := o.Redirect(&x.fx)
	x.fx.Request = &x.Request.Request
	if reply.Status == 0 {
		return false
	}
	x.rec.OverriddenStatus = uint16(x.resp.Status)
	x.resp.Header.RemoveIf(describesContent)
	x.resp.Header.Set(locationName, reply.Header.At(0).Value)
	x.resp.Status = reply.Status
	return true
}

// hasNoContent reports whether responses with the status have no content, whatever the method (RFC 9110 section 6.4.1);
// 205 must not have any either.
func hasNoContent(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// makeGRPC turns the head in x.resp into one that a gRPC client understands, with the message and the code for the
// status.
func (x *Exchange) makeGRPC(message []byte) {
	start := len(x.fx.Scratch)
	x.fx.Scratch = strconv.AppendInt(x.fx.Scratch, int64(grpcCode(x.resp.Status, observe.ReasonOK)), 10)
	header := &x.resp.Header
	header.Set(grpcStatusName, x.fx.Made(start))
	start = len(x.fx.Scratch)
	for _, c := range message { // percent-encoded, see grpc/grpc, doc/PROTOCOL-HTTP2.md
		if c >= ' ' && c <= '~' && c != '%' {
			x.fx.Scratch = append(x.fx.Scratch, c)
		} else {
			x.fx.Scratch = append(x.fx.Scratch, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	header.Set(grpcMessageName, x.fx.Made(start))
	header.Set(contentTypeName, grpcType)
	x.resp.Status = http.StatusOK
}

const hexDigits = "0123456789ABCDEF"

// overrideLocal overrides a response of the gateway, whose head is in x.resp, and returns the resulting body.
func (x *Exchange) overrideLocal(reason observe.Reason, body []byte) []byte {
	if o := x.matchOverride(true); o != nil {
		if other, replaced := x.override(o, reason); replaced {
			return other
		}
	}
	return body
}

// overrideBackend overrides the response of a backend, whose head is in x.resp. answered reports whether the client was
// sent another body, so that nothing is left to relay; read is the result of handle then.
func (x *Exchange) overrideBackend(a *attempt) (read, answered bool) {
	o := x.matchOverride(false)
	if o == nil {
		return false, false
	}
	body, replaced := x.override(o, x.ending)
	if !replaced {
		return false, false
	}
	x.filterResponse()
	x.keepSession()
	x.giveHashCookie()
	reason := x.ending
	if x.upgradeNotForwarded {
		reason = observe.ReasonUpgradeIgnored
	}
	x.limitWrite()
	framing, length, body := x.framingOf(x.resp.Status, body)
	if x.grpc {
		framing, length = http1.NoBody, -1
	}
	x.send(x.resp.Status, reason, framing, length, body, x.body.neverComes())
	whole := a.transport.atEnd() // otherwise the connection is not reused
	uploaded := x.body.finish(a, x.complete)
	gone := x.Client.Watch.end()
	a.end(x.complete && whole && uploaded && !gone)
	x.endSession(x.complete)
	return uploaded || x.body.allRead(), true
}

// overrideBody returns the body for a response.
func (x *Exchange) overrideBody(b *snapshot.ResponseBody, status int, reason observe.Reason) []byte {
	if b.Static {
		return b.Text
	}
	start := len(x.fx.Scratch)
	out := x.fx.Scratch
	for i := range b.Parts {
		switch p := &b.Parts[i]; p.Operator {
		case config.BodyText:
			out = append(out, p.Text...)
		case config.BodyResponseCode:
			out = strconv.AppendInt(out, int64(status), 10)
		case config.BodyReason:
			out = append(out, reason.String()...)
		case config.BodyProtocol:
			out = append(out, protocolName(x.Client.Protocol)...)
		case config.BodyRequestField:
			value, ok := x.requestField(p.Name)
			if !ok && p.Other != "" {
				value, ok = x.requestField(p.Other)
			}
			if !ok || len(value) == 0 && b.Escape != config.EscapeNothing { // an empty value may change the meaning of the text around it
				value = []byte("-")
			}
			most := maxOverrideValue
			if p.Length > 0 {
				most = min(most, p.Length)
			}
			out = appendEscaped(out, value[:min(len(value), most)], b.Escape)
		}
	}
	x.fx.Scratch = out
	return x.fx.Made(start)
}

func protocolName(name string) string {
	if name == "HTTP/2.0" {
		return "HTTP/2"
	}
	return name
}

// requestField returns a header field of the request, or the value of a pseudo-field that config.BodyPart.Name may
// name.
func (x *Exchange) requestField(name string) ([]byte, bool) {
	switch name {
	case ":authority":
		return x.rec.Host, true
	case ":method":
		return x.Method, true
	case ":path":
		t := x.rare.target
		if !t.hasQuery {
			return t.path, true
		}
		return append(append(bytes.Clone(t.path), '?'), t.query...), true
	}
	return x.Header.Get(name)
}

// appendEscaped appends a value that a client has sent. Unless it is plain text, the result is ASCII only, whatever
// charset the content type names.
func appendEscaped(dst, value []byte, how config.BodyEscape) []byte {
	if how == config.EscapeNothing {
		return append(dst, value...)
	}
	for len(value) > 0 {
		r, n := utf8.DecodeRune(value) // RuneError if it is not UTF-8
		value = value[n:]
		switch {
		case r < utf8.RuneSelf && inert[r], how == config.EscapeJSON && r < utf8.RuneSelf && inertInJSON[r]:
			dst = append(dst, byte(r))
		case how != config.EscapeJSON && r == 0:
			dst = append(dst, "&#65533;"...) // a reference to NUL is an error
		case how != config.EscapeJSON:
			dst = append(strconv.AppendInt(append(dst, "&#"...), int64(r), 10), ';')
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = appendUnicode(appendUnicode(dst, high), low)
		default:
			dst = appendUnicode(dst, r)
		}
	}
	return dst
}

// appendUnicode appends a JSON escape sequence.
func appendUnicode(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// inert are characters that end nothing in HTML: no attribute, quoted or not, no string and no element. inertInJSON are
// the additional ones for JSON strings, which may be in a script.
var inert, inertInJSON = setOf("-._~:/?,@+%"), setOf(" !#()*;=|[]^}")

// setOf returns the set of marks and all letters and digits.
func setOf(marks string) (s [utf8.RuneSelf]bool) {
	for _, c := range marks + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		s[c] = true
	}
	return s
}
