package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The most that a ListenerSet may have.
const listenersPerSet = 64

// certified is a standalone process that has certificates on one port, and what was measured of it.
type certified struct {
	number, perListener int
	ready               time.Duration // from the start of the process to the first handshake after it was ready
	begun               time.Duration // the CPU time of that
	resident            int64
	costs               []time.Duration // of CPU, for each handshake of a round

	process *exec.Cmd
	address string
}

// measureCertificates starts standalone processes, one with a single certificate and one with thousands on the same port, and compares what handshakes cost them.
func measureCertificates(ctx context.Context, _ *world, s *settings, r *report) error {
	one, many := &certified{number: 1, perListener: 1}, &certified{number: s.certificates, perListener: s.perListener}
	both := []*certified{one, many}
	for _, c := range both {
		dir, err := os.MkdirTemp("", "moongate-scale-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := c.start(ctx, s.moongate, dir); err != nil {
			return err
		}
		defer c.stop()
	}
	for round := range s.rounds + 1 {
		for _, c := range both {
			cost, err := c.handshakes(ctx, s.handshakes)
			if err != nil {
				return err
			}
			if round > 0 { // the first one is to warm up
				c.costs = append(c.costs, cost)
			}
		}
		slices.Reverse(both)
	}
	r.certificates(one, many)
	return nil
}

// ratios are what handshakes of c cost in each round, compared with the other's.
func (c *certified) ratios(other *certified) []float64 {
	out := make([]float64, len(c.costs))
	for i := range out {
		out[i] = float64(c.costs[i]) / float64(other.costs[i])
	}
	slices.Sort(out)
	return out
}

func (c *certified) listener(i int) int { return i / c.perListener }

// host is what the i-th certificate is for.
func (c *certified) host(i int) string { return fmt.Sprintf("c%d.l%d.example.com", i, c.listener(i)) }

// write makes the manifests: a Gateway, and a file for each ListenerSet with the Secrets of its listeners.
func (c *certified) write(dir string, port int) error {
	gateway := fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: default}
spec:
  gatewayClassName: moongate
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: first, port: %d, protocol: HTTPS, hostname: none.example.com, tls: {certificateRefs: [{name: c0}]}}]
`, port)
	if err := os.WriteFile(filepath.Join(dir, "gateway.yaml"), []byte(gateway), 0o600); err != nil {
		return err
	}
	perSet := listenersPerSet * c.perListener
	for from := 0; from < c.number; from += perSet {
		var b, secrets strings.Builder
		fmt.Fprintf(&b, "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: s%d, namespace: default}\nspec:\n  parentRef: {name: gw}\n  listeners:\n", from/perSet)
		for i := from; i < min(from+perSet, c.number); i++ {
			if i%c.perListener == 0 {
				fmt.Fprintf(&b, "  - name: l%d\n    port: %d\n    protocol: HTTPS\n    hostname: '*.l%[1]d.example.com'\n    tls:\n      certificateRefs:\n", c.listener(i), port)
			}
			fmt.Fprintf(&b, "      - name: c%d\n", i)
			certificate, key, err := selfSigned(c.host(i))
			if err != nil {
				return err
			}
			fmt.Fprintf(&secrets, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c%d, namespace: default}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: %s\n  tls.key: %s\n",
				i, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
		}
		b.WriteString(secrets.String())
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("set%d.yaml", from/perSet)), []byte(b.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func selfSigned(host string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	der8, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der8}), err
}

// start waits until the process is ready and the last certificate is served.
func (c *certified) start(ctx context.Context, binary, dir string) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	if err := c.write(dir, ports[0]); err != nil {
		return err
	}
	admin := fmt.Sprintf("127.0.0.1:%d", ports[1])
	c.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	c.process = exec.CommandContext(ctx, binary, "run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", admin, "--access-log", "off")
	var log strings.Builder
	c.process.Stderr = &log
	begin := time.Now()
	if err := c.process.Start(); err != nil {
		return err
	}
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for {
		code, err := ask(ctx, client, "http://"+admin+"/readyz", admin)
		if err == nil && code == http.StatusOK {
			break
		}
		if time.Since(begin) > patience {
			c.stop()
			return fmt.Errorf("not ready after %s: code %d, %v: %s", patience, code, err, log.String())
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	if err := c.handshake(ctx, c.number-1); err != nil {
		c.stop()
		return fmt.Errorf("%d certificates, ready after %s: %w: %s", c.number, time.Since(begin), err, log.String())
	}
	c.ready = time.Since(begin)
	c.begun, err = scheduled(c.process.Process.Pid)
	return err
}

func (c *certified) stop() {
	if c.process.ProcessState == nil {
		c.process.Process.Signal(syscall.SIGKILL)
		c.process.Wait()
	}
}

// handshakes makes so many full handshakes, each with a certificate by chance, and returns what one cost.
func (c *certified) handshakes(ctx context.Context, n int) (time.Duration, error) {
	before, err := scheduled(c.process.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := each(ctx, n, 2, func(ctx context.Context, _ int) error { return c.handshake(ctx, mathrand.IntN(c.number)) }); err != nil {
		return 0, err
	}
	after, err := scheduled(c.process.Process.Pid)
	if err != nil {
		return 0, err
	}
	u, err := process{pid: c.process.Process.Pid}.usage()
	c.resident = u.resident
	return (after - before) / time.Duration(n), err
}

// handshake fails where another certificate is shown than that of the server name.
func (c *certified) handshake(ctx context.Context, i int) error {
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: c.host(i), InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	conn, err := dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames; !slices.Equal(shown, []string{c.host(i)}) {
		return fmt.Errorf("%s was shown the certificate of %s", c.host(i), shown)
	}
	return nil
}

// scheduled is the CPU time that the kernel's scheduler has booked for all threads of a process; it is finer than the ticks of /proc/PID/stat.
func scheduled(pid int) (time.Duration, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(paths) == 0 {
		return 0, cmp.Or(err, fmt.Errorf("process %d has no threads", pid))
	}
	var sum time.Duration
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(content), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// freePorts are such that nobody has at this moment. They lie below those that the kernel gives to clients, which may take one before the process does.
func freePorts(n int) ([]int, error) {
	const from, to = 20000, 30000
	var out []int
	for range 1000 {
		port := from + mathrand.IntN(to-from)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // no two are the same
		if out = append(out, port); len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("no port is free")
}
