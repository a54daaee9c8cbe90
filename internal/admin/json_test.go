package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

const (
	keyPEM   = "-----BEGIN PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END PRIVATE KEY-----\n"
	chainPEM = "-----BEGIN CERTIFICATE-----\nbm90IGEgY2hhaW4=\n-----END CERTIFICATE-----\n"
)

// No form of a private key gets out, whatever it is called and however it is nested.
func TestSecretsAreRedacted(t *testing.T) {
	certificate := &config.Certificate{Key: "Secret/default/tls", ChainPem: []byte(chainPEM), KeyPem: []byte(keyPEM)}
	resource := &config.Resource{Kind: &config.Resource_Certificate{Certificate: certificate}}
	for name, v := range map[string]any{
		"resource":    []any{resource},
		"renamed":     map[string]any{"material": []byte(keyPEM)},
		"text":        []any{[]any{map[string]string{"note": "see: " + keyPEM}}},
		"bundle":      map[string]any{"pem": []byte(chainPEM + keyPEM)},
		"raw":         json.RawMessage(`{"key_pem":{"nested":["` + base64.StdEncoding.EncodeToString([]byte(keyPEM)) + `"]}}`),
		"camel":       map[string]any{"keyPem": "c2hvcnQ", "tls.key": "c2hvcnQ", "password": "c2hvcnQ"},
		"collector":   json.RawMessage(`{"spec":{"tracing":{"provider":{"headers":[{"name":"authorization","value":"Bearer c2hvcnQ"}]}}}}`),
		"not private": map[string]any{"keyPEM": "c2hvcnQ"},
	} {
		r := get(t, start(t, Options{Config: func() (any, error) { return v, nil }})+"/config")
		if r.status != 200 || !json.Valid([]byte(r.body)) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		for _, secret := range []string{"PRIVATE KEY", "bm90IGEga2V5", base64.StdEncoding.EncodeToString([]byte(keyPEM))[:40], "c2hvcnQ"} {
			if strings.Contains(r.body, secret) {
				t.Errorf("%s shows %s: %s", name, secret, r.body)
			}
		}
		if !strings.Contains(r.body, "(redacted)") {
			t.Errorf("%s does not show that something is left out: %s", name, r.body)
		}
	}
	for _, public := range []string{`{"headers": [{"name": "X-A", "value": "shown"}]}`, `{"provider": {"value": "shown"}}`, `{"provider": {"headers": []}, "spec": {"headers": [{"value": "shown"}]}}`} {
		if r := get(t, start(t, Options{Config: func() (any, error) { return json.RawMessage(public), nil }})+"/config"); !strings.Contains(r.body, "shown") {
			t.Errorf("%s is printed as %s", public, r.body)
		}
	}
	if r := get(t, start(t, Options{Config: func() (any, error) { return certificate, nil }})+"/config"); !strings.Contains(r.body, base64.StdEncoding.EncodeToString([]byte(chainPEM))) {
		t.Errorf("the chain, which is public, is not shown: %s", r.body)
	}
}

// What is no secret is printed as it is: order, numbers and all kinds of values.
func TestConfigIsPrintedFaithfully(t *testing.T) {
	const in = `{"z":1,"a":[true,null,1.50,12345678901234567890,{}],"key":"Secret/a/b","m":{"b":[],"a":"<é>"}}`
	out, err := redact([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(strings.ReplaceAll(in, "<", `\u003c`), ">", `\u003e`); string(out) != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

func TestConfigFails(t *testing.T) {
	if r := get(t, start(t, Options{Config: func() (any, error) { return nil, errors.New("no reason") }})+"/config"); r.status != 500 || !strings.Contains(r.body, "no reason") {
		t.Errorf("%d %q", r.status, r.body)
	}
	if r := get(t, start(t, Options{Config: func() (any, error) { return func() {}, nil }})+"/config"); r.status != 500 {
		t.Errorf("what is no JSON: %d %q", r.status, r.body)
	}
}
