package tls

import (
	"crypto"
	"crypto/tls"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

var notAfter = time.Now().Add(time.Hour).Truncate(time.Second).UTC()

// resource makes a self-signed certificate whose subject is its key.
func resource(t testing.TB, key string, signer crypto.Signer, hosts ...string) *config.Certificate {
	t.Helper()
	chain, private := testkit.Certificate{Name: key, Hosts: hosts, Key: signer, NotAfter: notAfter}.PEM(t)
	return &config.Certificate{Key: key, ChainPem: chain, KeyPem: private}
}

func parsed(t testing.TB, c *config.Certificate) *Certificate {
	t.Helper()
	out, err := Parse(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestParse(t *testing.T) {
	good := resource(t, "Secret/default/good", testkit.NewKey(t), "192.0.2.1", "A.Example", "*.b.example")
	c := parsed(t, good)
	if want := []string{"a.example", "*.b.example", "192.0.2.1"}; !reflect.DeepEqual(c.Names, want) {
		t.Errorf("names %q, want %q", c.Names, want)
	}
	if !c.NotAfter.Equal(notAfter) {
		t.Errorf("expires %v, want %v", c.NotAfter, notAfter)
	}
	other := resource(t, "other", testkit.NewKey(t), "a.example")
	for name, bad := range map[string]*config.Certificate{
		"key of another": {Key: "Secret/default/bad", ChainPem: good.ChainPem, KeyPem: other.KeyPem},
		"no key":         {Key: "Secret/default/bad", ChainPem: good.ChainPem},
		"no chain":       {Key: "Secret/default/bad", KeyPem: good.KeyPem},
		"swapped":        {Key: "Secret/default/bad", ChainPem: good.KeyPem, KeyPem: good.ChainPem},
		"cut":            {Key: "Secret/default/bad", ChainPem: good.ChainPem[:len(good.ChainPem)/2], KeyPem: good.KeyPem},
	} {
		_, err := Parse(bad)
		if err == nil || !strings.Contains(err.Error(), "Secret/default/bad") {
			t.Errorf("%s: %v, want an error that names the certificate", name, err)
		} else if strings.Contains(err.Error(), "PRIVATE KEY-----\n") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

// outcome is what came of a connection on which the server said one byte.
type outcome struct {
	subject              string // of the certificate that was shown, be it in a session before
	resumed              bool
	serverErr, clientErr error
}

// wires are the two ends of a connection.
func wires(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{client, server} {
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return client, server
}

// handshake shakes hands, has the server say a byte, and with it what a client needs to resume.
func handshake(t testing.TB, server, client *tls.Config) (out outcome) {
	t.Helper()
	a, b := wires(t)
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		_, err := tls.Server(b, server).Write([]byte{1})
		done <- err
	}()
	client = client.Clone()
	client.InsecureSkipVerify = true
	c := tls.Client(a, client)
	_, out.clientErr = c.Read(make([]byte, 1))
	state := c.ConnectionState()
	if len(state.PeerCertificates) > 0 && out.clientErr == nil {
		out.subject = state.PeerCertificates[0].Subject.CommonName
	}
	out.resumed = state.DidResume
	a.Close()
	out.serverErr = <-done
	return out
}

// serve is the configuration of a socket with one listener for every name.
func serve(l *Listener) *tls.Config { return Server(func(net.Conn, string) *Listener { return l }) }

// TestServerFindsListener: find sees the name in lower case, and where it knows none the handshake ends.
func TestServerFindsListener(t *testing.T) {
	var none *Listener
	listener := none.Update("default/gw/a", []*Certificate{parsed(t, resource(t, "c", testkit.NewKey(t), "a.example"))}, nil, nil, nil, HTTP)
	var asked []string
	cfg := Server(func(_ net.Conn, name string) *Listener {
		asked = append(asked, name)
		if name == "a.example" {
			return listener
		}
		return nil
	})
	if got := handshake(t, cfg, &tls.Config{ServerName: "A.Example"}); got.subject != "c" {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"b.example", ""} {
		if got := handshake(t, cfg, &tls.Config{ServerName: name}); got.clientErr == nil || got.subject != "" || Failure(got.serverErr) != ErrNoListener || !strings.Contains(got.clientErr.Error(), "unrecognized name") {
			t.Errorf("%q: %+v", name, got)
		}
	}
	if want := []string{"a.example", "b.example", ""}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// TestUnfitCertificateIsShown: dates are for the client to judge.
func TestUnfitCertificateIsShown(t *testing.T) {
	c := parsed(t, resource(t, "c", testkit.NewKey(t), "a.example"))
	for at, want := range map[time.Time]string{
		c.NotBefore: "", c.NotAfter: "",
		c.NotBefore.Add(-time.Second): "not valid before " + c.NotBefore.UTC().Format(time.RFC3339),
		c.NotAfter.Add(time.Second):   "expired " + c.NotAfter.UTC().Format(time.RFC3339),
	} {
		if got := c.Unfit(at); got != want {
			t.Errorf("at %v: %q, want %q", at, got, want)
		}
	}
	key := testkit.NewKey(t)
	old := resource(t, "old", key, "a.example")
	old.ChainPem, _ = testkit.Certificate{Name: "expired", Hosts: []string{"a.example"}, Key: key,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}.PEM(t)
	expired := parsed(t, old)
	if expired.Unfit(time.Now()) == "" {
		t.Error("nothing is said against a certificate of the past")
	}
	var none *Listener
	if got := handshake(t, serve(none.Update("l", []*Certificate{expired}, nil, nil, nil, HTTP)), &tls.Config{ServerName: "a.example"}); got.subject != "expired" {
		t.Errorf("%+v", got)
	}
}
