//go:build nodrop

package nodrop

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// audience is what a proxy's token must be for.
const audience = "moongate.dev/controller"

// TestIdentity asks the leader for a Gateway's configuration as its proxy would, and as others
// would: with another's token, one for another purpose, a forged one, or none.
func TestIdentity(t *testing.T) {
	w := open(t)
	cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata/identity.yaml"))
	w.authority = newAuthority(t)
	secrets := map[string]pair{}
	pods := map[string]corev1.Pod{}
	for _, name := range []string{"alpha", "omega"} {
		secrets[name] = w.authority.issue(t, name+".example.org")
		w.setCertificate(t, name, name, secrets[name])
		w.programmed(t, name, name)
		pods[name] = w.rolledOut(t, name, name+"-moongate")[0]
	}
	alpha, omega := pods["alpha"], pods["omega"]
	stranger, err := w.kube.CoreV1().Pods("alpha").Get(t.Context(), "stranger", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	valid := w.token(t, &alpha, audience)
	content, err := w.stream(t, valid, "alpha/alpha")
	if err != nil {
		t.Fatalf("a proxy does not get its own configuration: %v", err)
	}
	for _, own := range [][]byte{[]byte("alpha.example.org"), secrets["alpha"].key} {
		if !bytes.Contains(content, own) {
			t.Errorf("a proxy's own configuration lacks %.40q", own)
		}
	}
	if at := bytes.Index(content, []byte("omega")); at >= 0 || bytes.Contains(content, secrets["omega"].key) {
		t.Errorf("a proxy's configuration has something of another Gateway at byte %d of %d", at, len(content))
	}

	other := w.token(t, &omega, audience)
	for name, test := range map[string]struct {
		token string
		code  codes.Code
	}{
		"another Gateway's token":       {other, codes.PermissionDenied},
		"a pod that is no proxy":        {w.token(t, stranger, audience), codes.PermissionDenied},
		"for another audience":          {w.token(t, &alpha, "https://kubernetes.default.svc"), codes.Unauthenticated},
		"for the API server":            {w.token(t, &alpha, ""), codes.Unauthenticated},
		"not bound to a pod":            {w.unbound(t, &alpha), codes.Unauthenticated},
		"altered":                       {altered(t, other, "omega", "alpha"), codes.Unauthenticated},
		"without its signature":         {valid[:strings.LastIndexByte(valid, '.')+1], codes.Unauthenticated},
		"of an algorithm that is none":  {unsigned(t, valid), codes.Unauthenticated},
		"nonsense":                      {"nonsense", codes.Unauthenticated},
		"empty":                         {"", codes.Unauthenticated},
		"with something behind the end": {valid + "A", codes.Unauthenticated},
	} {
		content, err := w.stream(t, test.token, "alpha/alpha")
		if status.Code(err) != test.code || len(content) > 0 {
			t.Errorf("%s: %d bytes and %v, not %s", name, len(content), err, test.code)
		}
	}
	for _, gateway := range []string{"omega/omega", "alpha/omega", "", "alpha"} {
		if content, err := w.stream(t, valid, gateway); status.Code(err) != codes.PermissionDenied || len(content) > 0 {
			t.Errorf("asking for Gateway %q: %d bytes and %v", gateway, len(content), err)
		}
	}
}

// token asks the API server for a token of a pod's ServiceAccount that is bound to the pod.
func (w *world) token(t *testing.T, pod *corev1.Pod, audience string) string {
	t.Helper()
	return w.request(t, pod, audience, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

func (w *world) unbound(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return w.request(t, pod, audience, nil)
}

func (w *world) request(t *testing.T, pod *corev1.Pod, audience string, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := w.kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// altered is a token whose claims say something else; its signature stays.
func altered(t *testing.T, token, old, new string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !bytes.Contains(claims, []byte(old)) {
		t.Fatalf("%v: %s", err, claims)
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(bytes.ReplaceAll(claims, []byte(old), []byte(new)))
	return strings.Join(parts, ".")
}

// unsigned is a token that says that it needs no signature.
func unsigned(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	parts[0], parts[2] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)), ""
	return strings.Join(parts, ".")
}

// raw passes messages as they are on the wire, so that nothing of the product is between.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// Numbers of delivery.proto.
const (
	fromProxyHello protowire.Number = 1
	helloGateway   protowire.Number = 1
	toProxyCommit  protowire.Number = 3
)

// stream says Hello for a Gateway, and returns all that comes up to the first Commit, or the error.
func (w *world) stream(t *testing.T, token, gateway string) (content []byte, err error) {
	t.Helper()
	eventually(t, func() string { // until the leader answers, which may just have changed
		content, err = w.streamOnce(t, token, gateway)
		if status.Code(err) == codes.Unavailable {
			return err.Error()
		}
		return ""
	})
	return content, err
}

func (w *world) streamOnce(t *testing.T, token, gateway string) (content []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	leader, err := w.kube.CoreV1().Pods(system).Get(ctx, w.leader(t), metav1.GetOptions{})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	trust, err := w.kube.CoreV1().ConfigMaps("alpha").Get(ctx, "alpha-moongate", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trust.Data["ca.crt"])) {
		t.Fatalf("no certificate in %v", trust.Data)
	}
	connection, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(leader.Status.PodIP, "9443"),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: controller + "." + system + ".svc"})))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/moongate.delivery.v1.Delivery/Stream", grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return nil, err
	}
	hello := protowire.AppendString(protowire.AppendTag(nil, helloGateway, protowire.BytesType), gateway)
	message := protowire.AppendBytes(protowire.AppendTag(nil, fromProxyHello, protowire.BytesType), hello)
	_ = stream.SendMsg(message) // RecvMsg says what is wrong
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return content, err
		}
		content = append(content, message...)
		if number, _, _ := protowire.ConsumeTag(message); number == toProxyCommit {
			return content, nil
		}
	}
}
