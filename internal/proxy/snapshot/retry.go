package snapshot

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// RetryTriggers is a set of config.RetryTrigger. The zero value is empty.
type RetryTriggers uint32

func triggers(list ...config.RetryTrigger) (t RetryTriggers) {
	for _, one := range list {
		t |= 1 << one
	}
	return t
}

// The triggers for the outcomes of attempts. As in Envoy, an attempt without a response counts as one with a 5xx, which
// its client would be sent.
var (
	// OnReset are the triggers for an attempt that was begun and has brought no response.
	OnReset = triggers(config.RetryTrigger_RETRY_TRIGGER_RESET, config.RetryTrigger_RETRY_TRIGGER_5XX, config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR)
	// OnUnsent are the triggers for an attempt of which nothing was sent.
	OnUnsent = OnReset | triggers(config.RetryTrigger_RETRY_TRIGGER_RESET_BEFORE_REQUEST)
	// OnConnectFailure are the triggers for an attempt for which no connection could be made.
	OnConnectFailure = OnUnsent | triggers(config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE)
)

// Any reports whether the sets have a common trigger.
func (t RetryTriggers) Any(of RetryTriggers) bool { return t&of != 0 }

// grpcTriggers are the triggers for the gRPC status codes, by code.
var grpcTriggers = [...]RetryTriggers{
	1:               triggers(config.RetryTrigger_RETRY_TRIGGER_GRPC_CANCELLED),
	4:               triggers(config.RetryTrigger_RETRY_TRIGGER_GRPC_DEADLINE_EXCEEDED),
	8:               triggers(config.RetryTrigger_RETRY_TRIGGER_GRPC_RESOURCE_EXHAUSTED),
	13:              triggers(config.RetryTrigger_RETRY_TRIGGER_GRPC_INTERNAL),
	grpcUnavailable: triggers(config.RetryTrigger_RETRY_TRIGGER_GRPC_UNAVAILABLE),
}

const grpcUnavailable = 14

var (
	onServerError  = triggers(config.RetryTrigger_RETRY_TRIGGER_5XX)
	onGatewayError = triggers(config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR)
	onRetriable4xx = triggers(config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX)
	onCodes        = triggers(config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_STATUS_CODES)
)

// Wants reports whether a response asks for a retry. grpc means that the request is a gRPC call.
func (r *Retry) Wants(resp *message.Response, grpc bool) bool {
	switch {
	case r == nil:
		return false
	case r.Triggers != 0:
		return r.triggeredBy(resp)
	case grpc && resp.Status == http.StatusOK:
		return unavailable(resp)
	}
	return resp.Status >= 400 && r.names(resp.Status)
}

// unavailable reports whether a gRPC call has failed at once with UNAVAILABLE, by which a backend rejects a call before
// processing it (HTTPRouteRetry). As no code of the rule names it, a call that a proxy rejects because of overload is
// not sent again.
func unavailable(resp *message.Response) bool {
	code, ok := grpcStatus(resp)
	return ok && code == grpcUnavailable && !overloaded(resp)
}

// names reports whether a status is one of Statuses.
func (r *Retry) names(status int) bool {
	if status > 599 {
		return false
	}
	_, found := slices.BinarySearch(r.Statuses, uint16(status))
	return found
}

func (r *Retry) triggeredBy(resp *message.Response) bool {
	var by RetryTriggers
	switch status := resp.Status; {
	case status >= 502 && status <= 504:
		by = onServerError | onGatewayError
	case status >= 500:
		by = onServerError
	case status == 409:
		by = onRetriable4xx
	}
	if r.Triggers.Any(onCodes) && r.names(resp.Status) {
		by |= onCodes
	}
	if code, ok := grpcStatus(resp); ok && code < len(grpcTriggers) {
		by |= grpcTriggers[code]
	}
	return r.Triggers.Any(by) && !overloaded(resp)
}

// grpcStatus returns the status of a gRPC call that has failed at once, which is in the head of its response
// (Trailers-Only).
func grpcStatus(resp *message.Response) (code int, ok bool) {
	value, ok := resp.Header.Get("grpc-status")
	if !ok || len(value) == 0 || len(value) > 2 {
		return 0, false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		code = code*10 + int(c-'0')
	}
	return code, true
}

// overloaded reports whether a proxy on the path to the backend reports that it is overloaded, or that the client has
// sent too much: sending the request again would make that worse.
func overloaded(resp *message.Response) bool {
	if value, ok := resp.Header.Get("x-envoy-overloaded"); ok && !bytes.Equal(value, []byte("false")) {
		return true
	}
	_, limited := resp.Header.Get("x-envoy-ratelimited")
	return limited
}

// maxAttempts is the limit of the controller; another version may have none.
const maxAttempts = 16

func compileRetry(c *config.Retry) *Retry {
	if c == nil {
		return nil
	}
	r := &Retry{
		Attempts: int(min(c.Attempts, maxAttempts)), Backoff: time.Duration(c.BackoffNanos),
		Triggers: triggers(c.Triggers...), MaxBackoff: time.Duration(c.MaxBackoffNanos),
	}
	for _, code := range c.Codes {
		r.Statuses = append(r.Statuses, uint16(code))
	}
	slices.Sort(r.Statuses) // as the controller does
	return r
}
