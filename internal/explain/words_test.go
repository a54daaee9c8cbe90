package explain

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestWords: what a policy says is printed without the notation of the configuration.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		m    proto.Message
		want string
	}{
		{&config.Retry{Attempts: 2, Codes: []uint32{502, 503}, BackoffNanos: 50e6, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX, config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE}},
			"attempts 2; codes 502, 503; backoff 50ms; triggers 5xx, connect failure"},
		{&config.HealthCheck{PanicThresholdPercent: proto.Uint32(0), Active: &config.ActiveHealthCheck{TimeoutNanos: 1e9, UnhealthyThreshold: 3,
			Check: &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{Send: []byte("PING\r\n"), Receive: []byte{0xff}}}}},
			`panic threshold percent 0; active (timeout 1s; unhealthy threshold 3; tcp (send "PING\r\n"; receive "\xff"))`},
		{&config.HealthCheck{Active: &config.ActiveHealthCheck{Check: &config.ActiveHealthCheck_Tcp{Tcp: &config.TCPHealthCheck{}}}}, "active (tcp ())"},
		{&config.LoadBalancer{}, "type least request"},
		{&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH, ConsistentHash: &config.ConsistentHash{Headers: []string{"x-user"}, TableSize: 65537}},
			"type consistent hash; consistent hash (headers x-user; table size 65537)"},
		{&config.LoadBalancer{Type: 99}, "type 99"},
		{&config.BackendConnections{ClientProtocol: true, ConnectTimeoutNanos: 1500e6}, "connect timeout 1.5s; client protocol"},
		{&config.HTTPHealthCheck{Host: "a b", Path: "/"}, `host "a b"; path /`},
		{&config.PassiveHealthCheck{Consecutive_5XxErrors: proto.Uint32(0)}, "consecutive 5xx errors 0"},
	} {
		if got := words(c.m.ProtoReflect()); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
