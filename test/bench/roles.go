//go:build linux

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/forward"
	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/origin"
)

// roles are what this program is as its own child, named by the only argument.
// Each reads JSON from stdin and answers in JSON on stdout.
var roles = map[string]func(io.Reader, io.Writer) error{
	"role-origin": originRole,
	"role-load":   loadRole,
	"role-hold":   holdRole,
	"role-floor":  floorRole,
	"role-spin":   spinRole,
}

// runRole carries out the role that the arguments of the program name, and ends the program if that fails; false where they name none.
func runRole(args []string) bool {
	if len(args) != 2 || roles[args[1]] == nil {
		return false
	}
	if err := roles[args[1]](os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// originPorts are where the origin answers.
type originPorts struct{ HTTP, TLS, GRPC, UDP uint16 }

// keyPair is a certificate and its key as PEM.
type keyPair struct{ Chain, Key []byte }

// originRole serves with the keyPair on stdin until it is killed. It answers its originPorts.
func originRole(in io.Reader, out io.Writer) error {
	var pair keyPair
	if err := json.NewDecoder(in).Decode(&pair); err != nil {
		return err
	}
	server, ports, err := newOrigin(pair)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(ports); err != nil {
		return err
	}
	return server.Serve()
}

// floorRole forwards to the origin whose address is on stdin until it is killed. It answers its own address.
func floorRole(in io.Reader, out io.Writer) error {
	var to netip.AddrPort
	if err := json.NewDecoder(in).Decode(&to); err != nil {
		return err
	}
	debug.SetGCPercent(-1) // next to nothing is allocated
	debug.SetMemoryLimit(512 << 20)
	listener, addr, err := epoll.Listen()
	if err != nil {
		return err
	}
	server, err := forward.New(listener, to)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(addr); err != nil {
		return err
	}
	return server.Serve()
}

// spinRole uses a CPU until it is killed.
func spinRole(io.Reader, io.Writer) error {
	for {
		runtime.KeepAlive(0)
	}
}

// newOrigin makes the origin and opens its sockets.
func newOrigin(pair keyPair) (*origin.Server, *originPorts, error) {
	cert, err := tls.X509KeyPair(pair.Chain, pair.Key)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	server, err := origin.New()
	if err != nil {
		return nil, nil, err
	}
	ports := &originPorts{}
	for port, serve := range map[*uint16]func(listener int) error{
		&ports.HTTP: server.HTTP1,
		&ports.TLS:  func(listener int) error { return server.TLS(listener, config) },
		&ports.GRPC: server.HTTP2,
	} {
		listener, addr, err := epoll.Listen()
		if err != nil {
			return nil, nil, err
		}
		if err := serve(listener); err != nil {
			return nil, nil, err
		}
		*port = addr.Port()
	}
	socket, addr, err := epoll.ListenDatagram()
	if err != nil {
		return nil, nil, err
	}
	if err := server.UDP(socket); err != nil {
		return nil, nil, err
	}
	ports.UDP = addr.Port()
	return server, ports, nil
}

// loadRole measures one window of the load.Spec on stdin.
func loadRole(in io.Reader, out io.Writer) error {
	var spec load.Spec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return err
	}
	if !spec.PerRequest {
		// The loop makes next to no garbage; no collection should fall into a window.
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(512 << 20)
	}
	result, err := load.Run(&spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// holdRole opens the connections of the load.Spec on stdin, writes their number, and
// holds them until stdin ends.
func holdRole(in io.Reader, out io.Writer) error {
	var spec load.Spec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return err
	}
	release := make(chan struct{})
	return load.Hold(&spec, func() {
		fmt.Fprintln(out, spec.Connections)
		go func() {
			io.Copy(io.Discard, in)
			close(release)
		}()
	}, release)
}
