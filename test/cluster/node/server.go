package node

import (
	"bufio"
	"bytes"
	"context"
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
	"slices"
	"strconv"
	"time"
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

// logRequest is a PodLogOptions as the API server passes it on.
type logRequest struct {
	follow, timestamps bool
	since              time.Time
	tail               int // -1: everything
	limit              int64
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
	request := logRequest{follow: query.Get("follow") == "true", timestamps: query.Get("timestamps") == "true", tail: -1, limit: -1}
	if text := query.Get("tailLines"); text != "" {
		request.tail, _ = strconv.Atoi(text) // checked by the API server, as are the others
	}
	if text := query.Get("limitBytes"); text != "" {
		request.limit, _ = strconv.ParseInt(text, 10, 64)
	}
	if text := query.Get("sinceSeconds"); text != "" {
		s, _ := strconv.ParseInt(text, 10, 64)
		request.since = time.Now().Add(-seconds(s))
	}
	if text := query.Get("sinceTime"); text != "" {
		request.since, _ = time.Parse(time.RFC3339, text)
	}
	w.Header().Set("Content-Type", "text/plain")
	if err := copyLog(r.Context(), w, log, request); err != nil && r.Context().Err() == nil {
		n.Log.Printf("logs of %s: %v", r.URL.Path, err)
	}
}

func (p *pod) log(name string, previous bool) *logFile {
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

func copyLog(ctx context.Context, w http.ResponseWriter, log *logFile, request logRequest) error {
	file, err := os.Open(log.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if request.tail >= 0 {
		if err := skipToTail(file, request.tail); err != nil {
			return err
		}
	}
	reader := bufio.NewReader(file)
	var partial []byte
	for {
		grown, ended := log.state()
		for {
			line, err := reader.ReadBytes('\n')
			partial = append(partial, line...)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			text := request.format(partial)
			partial = partial[:0]
			if request.limit >= 0 {
				text = text[:min(int64(len(text)), request.limit)]
				request.limit -= int64(len(text))
			}
			if _, err := w.Write(text); err != nil || request.limit == 0 {
				return err
			}
		}
		if !request.follow || ended {
			return nil
		}
		http.NewResponseController(w).Flush()
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

// format turns "time stdout F text" into what the client asked for; nothing if it is too old.
func (r logRequest) format(line []byte) []byte {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && at.Before(r.since) {
		return nil
	}
	_, rest, _ = bytes.Cut(rest, []byte(" "))
	flag, text, _ := bytes.Cut(rest, []byte(" "))
	if string(flag) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if r.timestamps {
		return slices.Concat(stamp, []byte(" "), text)
	}
	return text
}

// skipToTail leaves the file before its last n lines.
func skipToTail(file *os.File, n int) error {
	var starts []int64
	reader, offset := bufio.NewReader(file), int64(0)
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if err == nil {
			starts = append(starts, offset+int64(len(line)))
		}
		offset += int64(len(line))
	}
	at := int64(0)
	if first := len(starts) - n - 1; first >= 0 {
		at = starts[first]
	}
	_, err := file.Seek(at, io.SeekStart)
	return err
}
