package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/test/cluster/logs"
)

// ServerPort is where the API server asks a node for logs.
const ServerPort = 10250

const arch = runtime.GOARCH

// ServerOptions names the files by which the node and the API server know each other.
type ServerOptions struct{ Cert, Key, ClientCA string }

// listen serves the part of the kubelet's API that `kubectl logs` needs, on every host's address.
func (n *Node) listen() (io.Closer, error) {
	certificate, err := tls.LoadX509KeyPair(n.Server.Cert, n.Server.Key)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(n.Server.ClientCA)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", n.Server.ClientCA)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	server := &http.Server{Handler: mux, ErrorLog: n.Log, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}}
	for _, host := range n.Hosts {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(host.Address, ServerPort).String())
		if err != nil {
			return nil, errors.Join(err, server.Close())
		}
		go server.ServeTLS(listener, "", "")
	}
	return server, nil
}

func (n *Node) serveLogs(w http.ResponseWriter, r *http.Request) {
	p := n.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, "no such pod on this node", http.StatusNotFound)
		return
	}
	query := r.URL.Query()
	log := p.log(r.PathValue("container"), query.Get("previous") == "true")
	if log == nil {
		http.Error(w, "the container has no such log", http.StatusBadRequest)
		return
	}
	request := logs.Request{Follow: query.Get("follow") == "true", Timestamps: query.Get("timestamps") == "true", Tail: -1, Limit: -1}
	if text := query.Get("tailLines"); text != "" {
		request.Tail, _ = strconv.Atoi(text) // checked by the API server, as are the others
	}
	if text := query.Get("limitBytes"); text != "" {
		request.Limit, _ = strconv.ParseInt(text, 10, 64)
	}
	if text := query.Get("sinceSeconds"); text != "" {
		s, _ := strconv.ParseInt(text, 10, 64)
		request.Since = time.Now().Add(-seconds(s))
	}
	if text := query.Get("sinceTime"); text != "" {
		request.Since, _ = time.Parse(time.RFC3339, text)
	}
	w.Header().Set("Content-Type", "text/plain")
	if err := log.Copy(r.Context(), w, request); err != nil && r.Context().Err() == nil {
		n.Log.Printf("logs of %s: %v", r.URL.Path, err)
	}
}

func (p *pod) log(name string, previous bool) *logs.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.spec.Name != name {
			continue
		}
		index := len(c.logs) - 1
		if previous {
			index--
		}
		if index >= 0 {
			return c.logs[index]
		}
	}
	return nil
}
