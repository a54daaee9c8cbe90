package snapshot

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// TestRetryTriggers: which responses ask for a retry, by each trigger alone.
func TestRetryTriggers(t *testing.T) {
	codes := []uint32{418, 599, 503}
	for trigger, want := range map[config.RetryTrigger]map[int]bool{
		config.RetryTrigger_RETRY_TRIGGER_5XX:                    {499: false, 500: true, 501: true, 502: true, 504: true, 599: true, 600: true, 200: false},
		config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR:          {500: false, 501: false, 502: true, 503: true, 504: true, 505: false},
		config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX:          {408: false, 409: true, 429: false, 503: false},
		config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_STATUS_CODES: {418: true, 419: false, 503: true, 500: false, 599: true, 65536 + 503: false},
		config.RetryTrigger_RETRY_TRIGGER_RESET:                  {409: false, 418: false, 503: false},
		config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE:        {503: false},
		config.RetryTrigger_RETRY_TRIGGER_REFUSED_STREAM:         {503: false},
		config.RetryTrigger_RETRY_TRIGGER_GRPC_UNAVAILABLE:       {503: false, 200: false},
	} {
		r := compileRetry(&config.Retry{Attempts: 1, Codes: codes, Triggers: []config.RetryTrigger{trigger}})
		for status, want := range want {
			if got := r.Wants(&message.Response{Status: status}, false); got != want {
				t.Errorf("%v, %d: %v", trigger, status, got)
			}
		}
	}
}

// TestRetryGRPCTriggers: which statuses of gRPC in the head of a response ask for a retry.
func TestRetryGRPCTriggers(t *testing.T) {
	all := map[config.RetryTrigger]string{
		config.RetryTrigger_RETRY_TRIGGER_GRPC_CANCELLED: "1", config.RetryTrigger_RETRY_TRIGGER_GRPC_DEADLINE_EXCEEDED: "4",
		config.RetryTrigger_RETRY_TRIGGER_GRPC_RESOURCE_EXHAUSTED: "8", config.RetryTrigger_RETRY_TRIGGER_GRPC_INTERNAL: "13",
		config.RetryTrigger_RETRY_TRIGGER_GRPC_UNAVAILABLE: "14",
	}
	for trigger, code := range all {
		r := compileRetry(&config.Retry{Attempts: 1, Triggers: []config.RetryTrigger{trigger}})
		for _, status := range []string{"0", "1", "2", "4", "8", "13", "14", "15", "16", "99", "", "-1", "014", "x"} {
			resp := message.Response{Status: 200}
			resp.Header.Add([]byte("Grpc-Status"), []byte(status))
			if got := r.Wants(&resp, true); got != (status == code) {
				t.Errorf("%v, grpc-status %q: %v", trigger, status, got)
			}
		}
		if r.Wants(&message.Response{Status: 200}, true) {
			t.Errorf("%v: a response without grpc-status", trigger)
		}
	}
}

// TestRetryOverloaded: what a proxy behind us says is too much is not sent again.
func TestRetryOverloaded(t *testing.T) {
	r := compileRetry(&config.Retry{Attempts: 1, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}})
	for _, field := range []string{"x-envoy-overloaded", "x-envoy-ratelimited"} {
		resp := message.Response{Status: 503}
		resp.Header.Add([]byte(field), []byte("true"))
		if r.Wants(&resp, true) {
			t.Errorf("%s is sent again", field)
		}
	}
}

// TestRetryUnavailable: without triggers a gRPC call is retried that has failed at once with UNAVAILABLE, and by codes where it got no answer of gRPC.
func TestRetryUnavailable(t *testing.T) {
	codes := compileRetry(&config.Retry{Attempts: 1, Codes: []uint32{503}})
	for _, c := range []struct {
		name   string
		retry  *Retry
		status int
		fields []string
		grpc   bool
		want   bool
	}{
		{"unavailable", codes, 200, []string{"grpc-status", "14"}, true, true},
		{"unavailable, no codes", compileRetry(&config.Retry{Attempts: 1}), 200, []string{"grpc-status", "14"}, true, true},
		{"unavailable, no retry", nil, 200, []string{"grpc-status", "14"}, true, false},
		{"no gRPC", codes, 200, []string{"grpc-status", "14"}, false, false},
		{"another status", codes, 200, []string{"grpc-status", "13"}, true, false},
		{"success", codes, 200, []string{"grpc-status", "0"}, true, false},
		{"malformed", codes, 200, []string{"grpc-status", "14.0"}, true, false},
		{"the status comes at the end", codes, 200, nil, true, false},
		{"overloaded", codes, 200, []string{"grpc-status", "14", "x-envoy-overloaded", "true"}, true, false},
		{"limited", codes, 200, []string{"grpc-status", "14", "x-envoy-ratelimited", "true"}, true, false},
		{"a code", codes, 503, nil, true, true},
		{"another code", codes, 502, []string{"grpc-status", "14"}, true, false},
	} {
		resp := message.Response{Status: c.status}
		for i := 0; i < len(c.fields); i += 2 {
			resp.Header.Add([]byte(c.fields[i]), []byte(c.fields[i+1]))
		}
		if got := c.retry.Wants(&resp, c.grpc); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
