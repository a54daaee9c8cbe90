//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/moongate-dev/moongate/test/bench/epoll"
	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/origin"
)

// roles are what this program is as its own child, named by the only argument.
// Each reads JSON from stdin and answers in JSON on stdout.
var roles = map[string]func(io.Reader, io.Writer) error{
	"role-origin": originRole,
	"role-load":   loadRole,
	"role-hold":   holdRole,
}

// originRole writes its port and serves until it is killed.
func originRole(_ io.Reader, out io.Writer) error {
	listener, addr, err := epoll.Listen()
	if err != nil {
		return err
	}
	server, err := origin.New(listener)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(addr.Port()); err != nil {
		return err
	}
	return server.Serve()
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
