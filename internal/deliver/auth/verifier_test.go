package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// apiServer is an API server as far as signing keys are concerned.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	issuer  string
	keys    []any // as they stand in the key set
	down    bool
	fetches int // of the key set
}

func newAPIServer(t testing.TB, keys ...any) *apiServer {
	s := &apiServer{issuer: issuer, keys: keys}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Header.Get("Authorization") != "Bearer controller":
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.issuer, "jwks_uri": "https://192.0.2.1/openid/v1/jwks"})
	case r.URL.Path == "/openid/v1/jwks":
		s.fetches++
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": s.keys})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// change edits the server while nothing is served.
func (s *apiServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: "controller", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// signingKey is a key of the cluster's, or of somebody who would like to be the cluster.
type signingKey struct {
	id   string
	alg  jose.SignatureAlgorithm
	priv crypto.Signer
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newKey(id string) *signingKey {
	return &signingKey{id, jose.ES256, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
}

func (k *signingKey) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.priv.Public(), KeyID: k.id, Algorithm: string(k.alg), Use: "sig"}
}

// sign makes a token of any claims.
func (k *signingKey) sign(claims any) string {
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: k.alg, Key: jose.JSONWebKey{Key: k.priv, KeyID: k.id}}, options))
	return must(must(signer.Sign(must(json.Marshal(claims)))).CompactSerialize())
}

// tokenClaims are those of a good token of an hour, edited.
func tokenClaims(now time.Time, edit ...func(map[string]any)) map[string]any {
	c := map[string]any{
		"iss": issuer,
		"aud": []string{Audience},
		"sub": "system:serviceaccount:shop:web-moongate",
		"iat": now.Unix(),
		"nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      "shop",
			"serviceaccount": map[string]any{"name": "web-moongate", "uid": "b8f5"},
			"pod":            map[string]any{"name": "web-moongate-7d9f-x2", "uid": "11aa"},
		},
	}
	for _, e := range edit {
		e(c)
	}
	return c
}

var goodIdentity = Identity{Namespace: "shop", ServiceAccount: "web-moongate", Pod: "web-moongate-7d9f-x2", PodUID: "11aa", ServiceAccountUID: "b8f5"}

// newVerifier is one that has fetched the server's keys.
func newVerifier(t testing.TB, s *apiServer, c *clock) *Verifier {
	t.Helper()
	v := must(NewVerifier(VerifierOptions{Config: s.config(), Now: c.now}))
	if _, err := v.refresh(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return v
}

// refused checks the error of a token that must not be taken.
func refused(t *testing.T, v *Verifier, token, why string) {
	t.Helper()
	id, err := v.Verify(token)
	if err == nil || id != (Identity{}) || !strings.Contains(err.Error(), why) {
		t.Errorf("identity %+v, error %v; want none, and an error with %q", id, err, why)
		return
	}
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 8 && strings.Contains(err.Error(), part) {
			t.Errorf("the error holds a part of the token: %v", err)
		}
	}
}

func TestVerify(t *testing.T) {
	c := newClock()
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := []*signingKey{
		{"rsa", jose.RS256, rsaKey},
		{"p256", jose.ES256, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))},
		{"p384", jose.ES384, must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))},
		{"p521", jose.ES512, must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))},
		{"ed", jose.EdDSA, edKey},
	}
	server := newAPIServer(t, map[string]any{"kty": "of the future", "kid": "new"})
	for _, k := range keys {
		server.keys = append(server.keys, k.public())
	}
	v := newVerifier(t, server, c)
	for _, k := range keys {
		if id, err := v.Verify(k.sign(tokenClaims(c.now()))); err != nil || id != goodIdentity {
			t.Errorf("%s: %+v %v", k.alg, id, err)
		}
	}
	// The audience may be one of several, and a string.
	for _, aud := range []any{Audience, []string{"other", Audience}} {
		if _, err := v.Verify(keys[0].sign(tokenClaims(c.now(), func(m map[string]any) { m["aud"] = aud }))); err != nil {
			t.Errorf("audience %v: %v", aud, err)
		}
	}
	if server.fetches != 1 {
		t.Errorf("the keys were fetched %d times", server.fetches)
	}

	// A key is good for the algorithm that the cluster says it is for, and for no other.
	refused(t, v, (&signingKey{"rsa", jose.PS256, rsaKey}).sign(tokenClaims(c.now())), "algorithm")
	refused(t, v, (&signingKey{"rsa", jose.RS512, rsaKey}).sign(tokenClaims(c.now())), "algorithm")
	refused(t, v, (&signingKey{"ed", jose.ES256, keys[1].priv}).sign(tokenClaims(c.now())), "signature")
	refused(t, v, (&signingKey{"p256", jose.ES256, newKey("p256").priv}).sign(tokenClaims(c.now())), "signature")
	secret := must(json.Marshal(keys[0].public()))
	hmac := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: "rsa"}}, nil))
	refused(t, v, must(must(hmac.Sign(must(json.Marshal(tokenClaims(c.now()))))).CompactSerialize()), "algorithm")
	payload := base64.RawURLEncoding.EncodeToString(must(json.Marshal(tokenClaims(c.now()))))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"rsa"}`))
	refused(t, v, none+"."+payload+".", "algorithm")

	good := keys[1].sign(tokenClaims(c.now()))
	parts := strings.Split(good, ".")
	refused(t, v, parts[0]+"."+payload[:len(payload)-8]+"AAAAAAAA."+parts[2], "signature")
	refused(t, v, parts[0]+"."+parts[1]+".", "")
	for _, text := range []string{"", ".", "..", "secret-token-text", good + ".x", strings.Repeat("a", maxToken+1), good + strings.Repeat(" ", 20<<10)} {
		refused(t, v, text, "")
	}
}

func TestClaims(t *testing.T) {
	c, key := newClock(), newKey("one")
	v := newVerifier(t, newAPIServer(t, key.public()), c)
	now := c.now()
	at := func(name string, d time.Duration) func(map[string]any) {
		return func(m map[string]any) { m[name] = now.Add(d).Unix() }
	}
	without := func(name string) func(map[string]any) { return func(m map[string]any) { delete(m, name) } }
	inKubernetes := func(name string, value any) func(map[string]any) {
		return func(m map[string]any) { m["kubernetes.io"].(map[string]any)[name] = value }
	}
	for name, ok := range map[string]func(map[string]any){
		"expired within the leeway":   at("exp", -29*time.Second),
		"valid soon, in the leeway":   at("nbf", 29*time.Second),
		"without not before":          without("nbf"),
		"with claims we do not know":  inKubernetes("node", map[string]string{"name": "n1"}),
		"an integer of another shape": func(m map[string]any) { m["exp"] = float64(now.Add(time.Hour).Unix()) + 0.5 },
	} {
		if _, err := v.Verify(key.sign(tokenClaims(now, ok))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []struct {
		edit func(map[string]any)
		why  string
	}{
		{at("exp", -31*time.Second), "expired 31s ago"},
		{at("nbf", 31*time.Second), "not valid yet"},
		{at("iat", 31*time.Second), "not valid yet"},
		{without("exp"), "never expires"},
		{without("aud"), "audience"},
		{func(m map[string]any) { m["aud"] = []string{issuer} }, "audience " + Audience},
		{without("iss"), "issuer"},
		{func(m map[string]any) { m["iss"] = "https://other" }, "issuer"},
		{without("kubernetes.io"), "not bound to a pod"},
		{inKubernetes("namespace", ""), "not bound to a pod"},
		{inKubernetes("serviceaccount", nil), "not bound to a pod"},
		{inKubernetes("serviceaccount", map[string]any{"name": "web-moongate"}), "not bound to a pod"},
		{inKubernetes("pod", nil), "not bound to a pod"},
		{inKubernetes("pod", map[string]string{"name": "p"}), "not bound to a pod"},
		{inKubernetes("pod", "p"), "not those of a Kubernetes token"},
		{func(m map[string]any) { m["exp"] = "tomorrow" }, "not those of a Kubernetes token"},
	} {
		refused(t, v, key.sign(tokenClaims(now, bad.edit)), bad.why)
	}
	refused(t, v, key.sign([]string{"no object"}), "not those of a Kubernetes token")
}

// TestKeyRotation has the cluster sign with a key that the verifier has not seen.
func TestKeyRotation(t *testing.T) {
	c, old, next := newClock(), newKey("old"), newKey("next")
	server := newAPIServer(t, old.public())
	v := newVerifier(t, server, c)
	c.forward(refreshAtMost)
	forged := newKey("forged").sign(tokenClaims(c.now()))
	refused(t, v, forged, "not among the cluster's signing keys")
	if server.fetches != 2 {
		t.Fatalf("an unknown key: %d fetches, want a second", server.fetches)
	}
	server.change(func() { server.keys = []any{next.public()} })
	token := next.sign(tokenClaims(c.now()))
	for range 100 { // as fast as anyone can ask
		refused(t, v, token, "not among the cluster's signing keys")
	}
	if server.fetches != 2 {
		t.Errorf("%d fetches within %v", server.fetches, refreshAtMost)
	}
	c.forward(refreshAtMost)
	if id, err := v.Verify(token); err != nil || id != goodIdentity {
		t.Errorf("the new key after %v: %+v %v", refreshAtMost, id, err)
	}
	refused(t, v, old.sign(tokenClaims(c.now())), "not among the cluster's signing keys")

	// Likewise where the issuer has changed.
	server.change(func() { server.issuer = "https://moved" })
	moved := next.sign(tokenClaims(c.now(), func(m map[string]any) { m["iss"] = "https://moved" }))
	refused(t, v, moved, "issuer")
	c.forward(refreshAtMost)
	if _, err := v.Verify(moved); err != nil {
		t.Errorf("the new issuer after %v: %v", refreshAtMost, err)
	}

	// API servers take tokens of both issuers while one is replaced, and pods have those of the former until they are renewed.
	former := func() string { return next.sign(tokenClaims(c.now())) }
	c.forward(48 * time.Minute)
	if id, err := v.Verify(former()); err != nil || id != goodIdentity {
		t.Errorf("a token of the former issuer: %+v %v", id, err)
	}
	refused(t, v, newKey("forged").sign(tokenClaims(c.now())), "not among the cluster's signing keys")
	refused(t, v, next.sign(tokenClaims(c.now(), func(m map[string]any) { m["iss"] = "https://other" })), "issuer")
	c.forward(12 * time.Minute)
	refused(t, v, former(), "issuer")
	// It may come back.
	server.change(func() { server.issuer = issuer })
	c.forward(refreshAtMost)
	for what, token := range map[string]string{"it": former(), "the other": next.sign(tokenClaims(c.now(), func(m map[string]any) { m["iss"] = "https://moved" }))} {
		if _, err := v.Verify(token); err != nil {
			t.Errorf("the former issuer is back, %s: %v", what, err)
		}
	}
}

// TestOutage checks that an API server that is down leaves the keys in force.
func TestOutage(t *testing.T) {
	c, key := newClock(), newKey("one")
	server := newAPIServer(t, key.public())
	v := newVerifier(t, server, c)
	server.change(func() { server.down = true })
	if _, err := v.refresh(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error %v of a server that is down", err)
	}
	c.forward(24 * time.Hour)
	if id, err := v.Verify(key.sign(tokenClaims(c.now()))); err != nil || id != goodIdentity {
		t.Errorf("a day later: %+v %v", id, err)
	}
	refused(t, v, newKey("forged").sign(tokenClaims(c.now())), "not among the cluster's signing keys")

	// Nonsense in place of the keys, too.
	for _, keys := range [][]any{{}, {map[string]string{"kty": "EC"}}, {jose.JSONWebKey{Key: key.priv, KeyID: "private"}}, {jose.JSONWebKey{Key: []byte("secret"), KeyID: "one"}}} {
		server.change(func() { server.down, server.keys = false, keys })
		if _, err := v.refresh(t.Context(), 0); err == nil {
			t.Errorf("keys %v were taken", keys)
		}
	}
	if _, err := v.Verify(key.sign(tokenClaims(c.now()))); err != nil {
		t.Errorf("after nonsense: %v", err)
	}
}

// TestImpatientCaller checks that who breaks off his call does not keep the keys from being fetched.
func TestImpatientCaller(t *testing.T) {
	c, key := newClock(), newKey("one")
	server := newAPIServer(t)
	server.keys = []any{newKey("first").public()}
	v := newVerifier(t, server, c)
	server.change(func() { server.keys = []any{key.public()} })
	c.forward(refreshAtMost)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.verify(ctx, key.sign(tokenClaims(c.now()))); err != nil {
		t.Error(err)
	}
}

// TestRun starts before the API server does.
func TestRun(t *testing.T) {
	c, key := newClock(), newKey("one")
	server := newAPIServer(t, key.public())
	server.down = true
	v := must(NewVerifier(VerifierOptions{Config: server.config(), Now: c.now}))
	token := key.sign(tokenClaims(c.now()))
	incoming := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
	if _, err := v.Authenticate(incoming); status.Code(err) != codes.Unavailable {
		t.Errorf("without keys: %v, want UNAVAILABLE so that the proxy tries again", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- v.Run(ctx) }()
	server.change(func() { server.down = false })
	select {
	case <-v.Known():
	case <-time.After(time.Minute):
		t.Fatal("no keys")
	}
	if err := v.Ready(); err != nil {
		t.Errorf("with keys: %v", err)
	}
	if id, err := v.Authenticate(incoming); err != nil || id != goodIdentity {
		t.Errorf("%+v %v", id, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestFailuresAreLoggedOnce: a failure that lasts is logged once for each kind and then rarely, and Ready returns it until there are keys.
func TestFailuresAreLoggedOnce(t *testing.T) {
	c, key := newClock(), newKey("one")
	server := newAPIServer(t, key.public())
	var log bytes.Buffer
	config := server.config()
	config.BearerToken = "somebody" // whose requests are forbidden
	v := must(NewVerifier(VerifierOptions{Config: config, Now: c.now, Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	if err := v.Ready(); !errors.Is(err, errNoKeys) {
		t.Errorf("before the first fetch: %v", err)
	}
	fetch := func(times int) {
		for range times {
			_, _ = v.refresh(t.Context(), 0)
			c.forward(retryEvery)
		}
	}
	logged := func(what string, want int) {
		t.Helper()
		if got := strings.Count(log.String(), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d:\n%s", what, got, want, log.String())
		}
		log.Reset()
	}
	fetch(100)
	if err := v.Ready(); err == nil || !strings.Contains(err.Error(), "/.well-known/openid-configuration is refused (403 Forbidden)") {
		t.Errorf("forbidden: %v", err)
	}
	select {
	case <-v.Known():
		t.Error("there are said to be keys")
	default:
	}
	logged("forbidden", 1)
	c.forward(repeatFailure)
	fetch(2)
	logged("forbidden for long", 1)
	server.change(func() { server.down = true })
	fetch(100)
	logged("down", 1)
	server.CloseClientConnections()
	server.Listener.Close()
	fetch(100)
	logged("away", 1)
}

func TestAuthenticate(t *testing.T) {
	c, key := newClock(), newKey("one")
	v := newVerifier(t, newAPIServer(t, key.public()), c)
	good := key.sign(tokenClaims(c.now()))
	expired := key.sign(tokenClaims(c.now().Add(-2 * time.Hour)))
	for _, test := range []struct {
		values []string
		code   codes.Code
	}{
		{[]string{"Bearer " + good}, codes.OK},
		{[]string{"bearer " + good}, codes.OK},
		{nil, codes.Unauthenticated},
		{[]string{""}, codes.Unauthenticated},
		{[]string{"Bearer"}, codes.Unauthenticated},
		{[]string{"Bearer "}, codes.Unauthenticated},
		{[]string{"Basic " + good}, codes.Unauthenticated},
		{[]string{good}, codes.Unauthenticated},
		{[]string{"Bearer " + expired}, codes.Unauthenticated},
		{[]string{"Bearer " + expired, "Bearer " + good}, codes.Unauthenticated},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": test.values})
		id, err := v.Authenticate(ctx)
		if status.Code(err) != test.code || (err == nil) != (id == goodIdentity) {
			t.Errorf("%.20q: %+v %v, want %v", test.values, id, err, test.code)
		}
		if err != nil && (strings.Contains(err.Error(), good) || strings.Contains(err.Error(), expired)) {
			t.Errorf("the token is in %v", err)
		}
	}
	if _, err := v.Authenticate(context.Background()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("outside a call: %v", err)
	}
}

// FuzzVerify: no bytes that the cluster has not signed are ever an identity.
func FuzzVerify(f *testing.F) {
	c, key := newClock(), newKey("one")
	v := newVerifier(f, newAPIServer(f, key.public()), c)
	good := key.sign(tokenClaims(c.now()))
	f.Add(good)
	f.Add(newKey("one").sign(tokenClaims(c.now())))
	f.Add(newKey("other").sign(tokenClaims(c.now())))
	f.Add(key.sign(tokenClaims(c.now(), func(m map[string]any) { m["aud"] = "other" })))
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Add(`{"payload":"e30","signatures":[{"protected":"e30"}]}`)
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"one","crit":["b64"],"b64":false}`)) + ".e30.AAAA")
	body, _, _ := strings.Cut(good[strings.Index(good, ".")+1:], ".")
	f.Fuzz(func(t *testing.T, token string) {
		id, err := v.Verify(token)
		if err == nil && (id != goodIdentity || !strings.Contains(token, body)) {
			t.Fatalf("%q is taken for %+v", token, id)
		}
		if err != nil && (id != Identity{} || len(token) > 40 && strings.Contains(err.Error(), token)) {
			t.Fatalf("%q: %+v %v", token, id, err)
		}
	})
}
