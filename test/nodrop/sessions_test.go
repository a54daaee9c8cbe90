//go:build nodrop

package nodrop

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// TestSessions: a client goes on with its TLS session at every proxy of the Gateway, at those that replace them,
// and at those that hear of the keys from another leader.
func TestSessions(t *testing.T) {
	w := open(t)
	w.setUp(t)
	client := w.tls.Clone()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	first := w.rolledOut(t, namespace, proxies)[0]
	if visit(t, client, first.Status.PodIP) {
		t.Fatal("a client without a session resumed one")
	}
	everywhere := func(when string) {
		t.Helper()
		for _, pod := range w.rolledOut(t, namespace, proxies) {
			if !visit(t, client, pod.Status.PodIP) {
				t.Errorf("%s: proxy %s did not resume the session", when, pod.Name)
			}
		}
	}
	everywhere("at the beginning")
	w.restart(t, namespace, proxies)
	everywhere("after a restart")
	w.deletePod(t, system, w.leader(t))
	w.changes(t)
	w.restart(t, namespace, proxies)
	everywhere("under another leader")

	w.setCertificate(t, namespace, "web", w.authority.issue(t, host))
	eventually(t, func() string {
		if visit(t, client, w.rolledOut(t, namespace, proxies)[0].Status.PodIP) {
			return "a session goes on that belongs to the certificate before"
		}
		return ""
	})
}

// visit makes a connection with one request, and tells whether it resumed a session.
func visit(t *testing.T, client *tls.Config, address string) bool {
	t.Helper()
	connection, err := tls.Dial("tcp", net.JoinHostPort(address, "443"), client)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, connection); err != nil { // the tickets come with the response
		t.Fatal(err)
	}
	return connection.ConnectionState().DidResume
}
