// Package delivertest provides tests of the delivery with servers on loopback, identities of proxies, and streams without a client.
// It exists so that both ends are tested over TLS as in production.
//
// It must be imported by tests only.
package delivertest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// Host is the name in the certificates of servers.
const Host = "localhost"

// CAFile writes the certificates of the authorities to a file and returns its path.
func CAFile(t testing.TB, authorities ...*testkit.Authority) string {
	t.Helper()
	var text []byte
	for _, a := range authorities {
		text = append(text, a.PEM...)
	}
	return testkit.WriteFile(t, "ca.crt", text)
}

// Serve starts a server with a certificate of the authority at an address ("127.0.0.1:0" for any port), and returns its address and
// a function that stops it at once; the end of the test stops it too.
func Serve(t testing.TB, authority *testkit.Authority, address string, register func(*grpc.Server), options ...grpc.ServerOption) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String(), ServeOn(t, authority, listener, register, options...)
}

// ServeOn is Serve on a listener, which it closes.
func ServeOn(t testing.TB, authority *testkit.Authority, listener net.Listener, register func(*grpc.Server), options ...grpc.ServerOption) (stop func()) {
	t.Helper()
	certificate := testkit.Certificate{Hosts: []string{Host}, Issuer: authority}.TLS(t)
	creds := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
	s := grpc.NewServer(append(options, grpc.Creds(creds))...)
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	stop = func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Identity verifies the tokens that Token makes, for RemoteOptions.Authenticate; it rejects others.
func Identity(ctx context.Context) (deliver.Caller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	fields := strings.Fields(token)
	if len(fields) != 3 || Token(fields[0], fields[1]) != token {
		return deliver.Caller{}, errors.New("the token is not valid")
	}
	pod, uid, _ := strings.Cut(fields[1], "@")
	return deliver.Caller{Gateway: fields[0], Pod: pod, PodUID: uid}, nil
}

var secret = rand.Text()

// Token returns the token of a pod, "<name>" or "<name>@<uid>", of a Gateway.
func Token(gateway, pod string) string {
	return fmt.Sprintf("%s %s %x", gateway, pod, sha256.Sum256([]byte(secret+gateway+" "+pod)))
}

// Dial opens a stream without a client, which ends with the test.
func Dial(t testing.TB, address, caFile, token string) wire.Delivery_StreamClient {
	t.Helper()
	creds, err := credentials.NewClientTLSFromFile(caFile, Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s, err := wire.NewDeliveryClient(conn).Stream(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Ask sends one message and returns the response.
func Ask(t testing.TB, address, caFile, token string, m *wire.FromProxy) (*wire.ToProxy, error) {
	t.Helper()
	s := Dial(t, address, caFile, token)
	_ = s.Send(m) // Recv reports the error
	return s.Recv()
}

// Committed receives a generation, and returns its Commit.
func Committed(t testing.TB, s wire.Delivery_StreamClient) *wire.Commit {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if commit := m.GetCommit(); commit != nil {
			return commit
		}
	}
}
