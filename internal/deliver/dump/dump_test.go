package dump_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
)

// TestSecretsStay: what is printed holds no secret, and the resources keep theirs.
func TestSecretsStay(t *testing.T) {
	secrets := [][]byte{[]byte("the first of two ticket secrets!"), []byte("the second of two ticket secrets"), []byte("the secret of persistent session")}
	resources := []*config.Resource{
		{Kind: &config.Resource_TicketKeys{TicketKeys: &config.TicketKeys{Key: "default/gw", Keys: secrets[:2], SessionKeys: secrets[2:]}}},
		{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "Secret/default/c", ChainPem: []byte("chain"), KeyPem: secrets[0]}}},
		{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "default/gw/https", Tracing: &config.Tracing{Headers: []*config.HeaderField{{Name: "authorization", Value: string(secrets[1])}}}}}},
		{Kind: &config.Resource_RateLimitService{RateLimitService: &config.RateLimitService{Key: "default/gw", Address: "redis://user:" + string(secrets[2]) + "@redis.default.svc:6379/1"}}},
	}
	var before []proto.Message
	for _, r := range resources {
		before = append(before, proto.CloneOf(r))
	}
	order := []int{1, 2, 0, 3} // certificates, listeners, ticket keys, rate limit services
	d, err := dump.Of(7, resources)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		quoted, err := json.Marshal(s) // as bytes are written in JSON
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), string(quoted)) || strings.Contains(string(text), string(s)) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
	if !strings.Contains(string(text), "redis://(redacted)@redis.default.svc:6379/1") {
		t.Errorf("the address of Redis is not shown: %s", text)
	}
	for i, from := range order {
		if !proto.Equal(resources[i], before[from]) {
			t.Errorf("resource %d was changed: %v", i, resources[i].ID())
		}
	}
	if n := len(resources[2].GetTicketKeys().GetKeys()); n != 2 || !strings.Contains(string(text), "default/gw/https") {
		t.Errorf("%d keys, %s", n, text)
	}
}

// TestEveryFieldOfBytesIsKnown makes whoever adds bytes to the contract decide whether they are a secret.
func TestEveryFieldOfBytesIsKnown(t *testing.T) {
	known := map[protoreflect.FullName]bool{
		"moongate.config.v1.Certificate.chain_pem":   true,
		"moongate.config.v1.Revocable.lists":         true,
		"moongate.config.v1.Certificate.key_pem":     true, // redacted
		"moongate.config.v1.TicketKeys.keys":         true, // redacted
		"moongate.config.v1.TicketKeys.session_keys": true, // redacted
		// What health checks send and expect stands in policies, which are no place for secrets.
		"moongate.config.v1.HTTPHealthCheck.expected_response": true,
		"moongate.config.v1.HTTPHealthCheck.request_body":      true,
		"moongate.config.v1.TCPHealthCheck.send":               true,
		"moongate.config.v1.TCPHealthCheck.receive":            true,
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.Kind() == protoreflect.BytesKind && f.FullName().Parent() != "google.protobuf.Any" && !known[f.FullName()] {
				t.Errorf("%s holds bytes: is that a secret, to be redacted?", f.FullName())
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	walk((*config.Resource)(nil).ProtoReflect().Descriptor())
}
