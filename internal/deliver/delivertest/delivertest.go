// Package delivertest gives tests of the delivery servers on loopback. It exists so that both ends are tested over TLS as
// they run.
//
// It must be imported by tests only.
package delivertest

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// Host is the name that servers have certificates for.
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

// Serve starts a server that the authority vouches for at an address ("127.0.0.1:0" for any port), and returns where it is and
// what stops it at once; the end of the test does too.
func Serve(t testing.TB, authority *testkit.Authority, address string, register func(*grpc.Server), options ...grpc.ServerOption) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
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
	stop := func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}
