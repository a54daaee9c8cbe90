package externalauth

import (
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/externalauth/extauthz"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

var (
	checkPath       = []byte("/envoy.service.auth.v3.Authorization/Check")
	contentTypeName = []byte("content-type")
	timeoutName     = []byte("grpc-timeout")
	timeoutValue    = []byte("5S") // as long as the engine waits for a call
)

var errNoAnswer = errors.New("the call has failed, or its answer is not a CheckResponse")

// askGRPC makes the server check the request.
func (a *auth) askGRPC(x *filter.Exchange, body []byte) *filter.Reply {
	check, err := filter.GRPCBody(a.describe(x, body))
	if err != nil {
		return x.Fail(failed)
	}
	call := filter.NewGRPC(a.backend, a.authority, checkPath, check)
	h := &call.Request.Header
	h.Add(timeoutName, timeoutValue)
	for i := range x.Request.Header.Len() { // as with HTTP
		if f := x.Request.Header.At(i); message.EqualFold(f.Name, "cdn-loop") {
			h.Append(*f)
		}
	}
	if err := x.Engine.Call(call); err != nil {
		return x.Fail(reasonOf(err))
	}
	answer, err := readAnswer(call)
	if err != nil {
		return x.Fail(failed)
	}
	if answer.GetStatus().GetCode() != 0 {
		return denyGRPC(x, answer.GetDeniedResponse())
	}
	return a.allowGRPC(x, answer.GetOkResponse())
}

// describe returns the description of the request for the server.
func (a *auth) describe(x *filter.Exchange, body []byte) *extauthz.CheckRequest {
	r, client := x.Request, x.Engine.ClientInfo()
	path := string(r.Path)
	if r.HasQuery {
		path += "?" + string(r.Query)
	}
	described := &extauthz.HTTPRequest{
		Method: valid(r.Method), Path: strings.ToValidUTF8(path, replacement), Host: valid(r.Host), Scheme: x.Scheme, Size: x.Engine.BodyLength(),
		Protocol: client.Protocol, Headers: a.headers(x),
	}
	if described.Protocol == "HTTP/2.0" {
		described.Protocol = "HTTP/2" // as in other gateways with this protocol
	}
	if id, ok := r.Header.Get("x-request-id"); ok {
		described.Id = valid(id)
	}
	if a.maxBody > 0 {
		described.Size = int64(len(body))
		if utf8.Valid(body) {
			described.Body = unsafe.String(unsafe.SliceData(body), len(body)) // it is encoded before body changes
		} else {
			described.RawBody = body
		}
	}
	attributes := &extauthz.AttributeContext{
		Source:      &extauthz.Peer{Address: addressOf(client.Address.Addr(), client.Address.Port())},
		Destination: &extauthz.Peer{Address: addressOf(client.Local, x.ListenerPort)},
		Request:     &extauthz.Request{Time: timestamppb.Now(), Http: described},
	}
	if len(client.ServerName) > 0 {
		attributes.TlsSession = &extauthz.TLSSession{Sni: valid(client.ServerName)}
	}
	return &extauthz.CheckRequest{Attributes: attributes}
}

// addressOf returns nil if the address is unknown: servers that validate the message would reject an empty one.
func addressOf(a netip.Addr, port uint16) *extauthz.Address {
	if !a.IsValid() {
		return nil
	}
	return &extauthz.Address{SocketAddress: &extauthz.SocketAddress{Address: a.String(), PortValue: uint32(port)}}
}

// replacement replaces bytes that are not UTF-8, which protocol buffer strings must not contain.
const replacement = "\uFFFD"

func valid(b []byte) string { return strings.ToValidUTF8(string(b), replacement) }

// headers returns the fields for the server, with the HTTP/2 pseudo-header fields of the target.
func (a *auth) headers(x *filter.Exchange) map[string]string {
	r := x.Request
	all := make(map[string]string, r.Header.Len()+4)
	add := func(n string, value []byte) {
		if len(a.requestHeaders) > 0 && !has(a.requestHeaders, []byte(n)) {
			return
		}
		v := valid(value)
		if before, ok := all[n]; ok {
			separator := ","
			if n == "cookie" { // RFC 9113 section 8.2.3
				separator = "; "
			}
			v = before + separator + v
		}
		all[n] = v
	}
	add(":method", r.Method)
	add(":authority", r.Host)
	add(":scheme", []byte(x.Scheme))
	path := r.Path
	if r.HasQuery {
		path = bytes.Join([][]byte{r.Path, r.Query}, []byte("?"))
	}
	add(":path", path)
	for i := range r.Header.Len() {
		f := r.Header.At(i)
		add(strings.ToLower(valid(f.Name)), f.Value)
	}
	return all
}

// readAnswer parses the message of a successful call.
func readAnswer(call *filter.Call) (*extauthz.CheckResponse, error) {
	msg, ok := call.GRPCMessage()
	if !ok || call.GRPCStatus() != "0" {
		return nil, errNoAnswer
	}
	answer := &extauthz.CheckResponse{}
	if err := proto.Unmarshal(msg, answer); err != nil {
		return nil, err
	}
	if answer.GetStatus().GetCode() == 0 && answer.GetDeniedResponse() != nil {
		return nil, errNoAnswer // it allows and denies
	}
	return answer, nil
}

// denyGRPC returns the reply that the server requests; r may be nil.
func denyGRPC(x *filter.Exchange, r *extauthz.DeniedHTTPResponse) *filter.Reply {
	status := int(r.GetStatus().GetCode())
	if status == 0 || saysYes(status) {
		status = http.StatusForbidden
	}
	reply := x.Reply(status, denied)
	// Repeated fields are added rather than replaced, as in Envoy: several challenges are for the client to choose from
	// (RFC 9110 section 11.6.1).
	if status < 200 || status > 599 || change(&reply.Header, r.GetHeaders(), extauthz.AppendAction_APPEND_IF_EXISTS_OR_ADD) != nil {
		return x.Fail(failed)
	}
	reply.Body = []byte(r.GetBody())
	if _, ok := reply.Header.Get("content-type"); !ok && len(reply.Body) > 0 {
		reply.Header.Add(contentTypeName, []byte("text/plain; charset=utf-8"))
	}
	return bounded(x, reply)
}

// allowGRPC changes the request as the server requests; r may be nil. It notes the changes of the response.
func (a *auth) allowGRPC(x *filter.Exchange, r *extauthz.OKHTTPResponse) *filter.Reply {
	if r == nil {
		return nil
	}
	h := &x.Request.Header
	if change(h, r.Headers, override) != nil || change(&message.Fields{}, r.ResponseHeadersToAdd, override) != nil {
		return x.Fail(failed)
	}
	for _, o := range r.Headers {
		if n := strings.ToLower(o.GetHeader().GetKey()); changeable(n) {
			x.Decide(n)
		}
	}
	for _, n := range r.HeadersToRemove {
		if n = strings.ToLower(n); changeable(n) {
			removeLike(h, n)
			x.Decide(n)
		}
	}
	setQuery(x.Request, r.QueryParametersToSet, r.QueryParametersToRemove)
	if len(r.ResponseHeadersToAdd) > 0 {
		note, err := proto.Marshal(&extauthz.OKHTTPResponse{ResponseHeadersToAdd: r.ResponseHeadersToAdd})
		if err != nil {
			return x.Fail(failed)
		}
		x.Note(a, note)
	}
	return nil
}

// addResponseHeaders changes the response as the server has requested.
func (a *auth) addResponseHeaders(x *filter.Exchange) {
	note, ok := x.Noted(a)
	if !ok {
		return
	}
	var r extauthz.OKHTTPResponse
	if proto.Unmarshal(note, &r) == nil {
		change(&x.Response.Header, r.ResponseHeadersToAdd, override) //nolint:errcheck // allowGRPC has checked it
	}
}

var errField = errors.New("the answer has a field that cannot be sent")

// override is the default action for fields of requests, and of responses of backends.
const override = extauthz.AppendAction_OVERWRITE_IF_EXISTS_OR_ADD

// change applies the changes in an answer to fields. usual is the action if neither append nor append_action is set.
// Fields that belong to the engine are not changed. It returns an error if a field is invalid; then not all changes may
// have been made.
func change(fields *message.Fields, list []*extauthz.HeaderValueOption, usual extauthz.AppendAction) error {
	for _, o := range list {
		n, value := strings.ToLower(o.GetHeader().GetKey()), o.GetHeader().GetRawValue()
		if len(value) == 0 {
			value = []byte(o.GetHeader().GetValue())
		}
		value = bytes.Trim(value, " \t")
		if bytes.IndexFunc(value, config.IsControl) >= 0 || n == "" {
			return errField
		}
		if strings.HasPrefix(n, ":") {
			continue // the route was already decided by the host
		}
		if !changeable(n) {
			if unchangeable(n) {
				continue
			}
			return errField
		}
		set(fields, o, usual, n, value)
	}
	return nil
}

// set makes one of the changes.
func set(fields *message.Fields, o *extauthz.HeaderValueOption, usual extauthz.AppendAction, n string, value []byte) {
	action := o.GetAppendAction()
	switch {
	case o.Append.GetValue():
		action = extauthz.AppendAction_APPEND_IF_EXISTS_OR_ADD
	case o.Append == nil && action != extauthz.AppendAction_APPEND_IF_EXISTS_OR_ADD:
	case o.Append == nil && n == "set-cookie": // several are several cookies
	default: // also the default value of append_action
		action = usual
	}
	_, exists := fields.Get(n)
	switch action {
	case extauthz.AppendAction_ADD_IF_ABSENT:
		if exists {
			return
		}
	case extauthz.AppendAction_OVERWRITE_IF_EXISTS:
		if !exists {
			return
		}
		removeLike(fields, n)
	case extauthz.AppendAction_OVERWRITE_IF_EXISTS_OR_ADD:
		removeLike(fields, n)
	}
	if len(value) > 0 || o.GetKeepEmptyValue() {
		fields.Add([]byte(n), value)
	}
}

// setQuery sets and removes parameters of the query, and does not change the others.
func setQuery(r *message.Request, toSet []*extauthz.QueryParameter, toRemove []string) {
	if len(toSet) == 0 && len(toRemove) == 0 {
		return
	}
	gone := make(map[string]bool, len(toSet)+len(toRemove))
	for _, p := range toSet {
		gone[p.Key] = true
	}
	for _, key := range toRemove {
		gone[key] = true
	}
	var kept []string
	for parameter := range strings.SplitSeq(string(r.Query), "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if decoded, err := url.QueryUnescape(key); err == nil {
			key = decoded
		}
		if parameter != "" && !gone[key] {
			kept = append(kept, parameter)
		}
	}
	for _, p := range toSet {
		kept = append(kept, url.QueryEscape(p.Key)+"="+url.QueryEscape(p.Value))
	}
	r.Query, r.HasQuery = []byte(strings.Join(kept, "&")), len(kept) > 0
}
