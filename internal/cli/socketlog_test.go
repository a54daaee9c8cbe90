package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestSocketLog: each socket has a line when it is opened, has other listeners or is closed, as long as these are not too many.
func TestSocketLog(t *testing.T) {
	on := func(key string, protocol config.Protocol, addresses ...string) proxy.BoundListener {
		return proxy.BoundListener{Key: key, Protocol: protocol, Addresses: addresses, Routes: 1}
	}
	const http, udp = config.Protocol_PROTOCOL_HTTP, config.Protocol_PROTOCOL_UDP
	var many []proxy.BoundListener
	for i := range 1000 {
		many = append(many, on(fmt.Sprintf("a/gw/%03d", i), http, fmt.Sprintf(":%d", 10000+i)))
	}
	var crowd []proxy.BoundListener
	for i := range 1000 {
		crowd = append(crowd, on(fmt.Sprintf("a/gw/%03d", i), http, ":80"))
	}
	var log testkit.Log
	l := &socketLog{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))}
	bound := func(b ...proxy.BoundListener) func() []proxy.BoundListener {
		return func() []proxy.BoundListener { return b }
	}
	if l.update(bound(on("a/gw/x", http, ":1"))) || log.String() != "" {
		t.Errorf("before the start: %s", log.String())
	}
	if n := l.begin(bound()); n != 0 {
		t.Errorf("%d listeners at the start", n)
	}
	said := 0
	for _, step := range []struct {
		bound []proxy.BoundListener
		want  []string
		none  bool
	}{
		{bound(on("a/gw/web", http, ":80"))(), []string{"msg=listening address=:80 protocol=HTTP listeners=a/gw/web routes=1"}, false},
		{bound(on("a/gw/web", http, ":80"))(), nil, false},
		{bound(on("a/gw/api", http, ":80"), on("a/gw/dns", udp, ":80"), on("a/gw/web", http, ":80"))(),
			[]string{`msg="listening for other listeners" address=:80 protocol=HTTP added=a/gw/api removed=""`, "msg=listening address=:80 protocol=UDP listeners=a/gw/dns routes=1"}, false},
		{bound(on("a/gw/web", http, "192.0.2.1:81", "192.0.2.2:81"))(), []string{`msg="no longer listening" address=:80 protocol=HTTP listeners=a/gw/api,a/gw/web`, `msg="no longer listening" address=:80 protocol=UDP listeners=a/gw/dns`,
			"msg=listening address=192.0.2.1:81 protocol=HTTP listeners=a/gw/web routes=1", "msg=listening address=192.0.2.2:81 protocol=HTTP listeners=a/gw/web routes=1"}, false},
		{nil, []string{`msg="no longer listening" address=192.0.2.1:81 protocol=HTTP listeners=a/gw/web`, `msg="no longer listening" address=192.0.2.2:81 protocol=HTTP listeners=a/gw/web`}, true},
		{crowd, []string{`msg=listening address=:80 protocol=HTTP listeners="a/gw/000,a/gw/001,a/gw/002,a/gw/003,a/gw/004,a/gw/005,a/gw/006,a/gw/007 and 992 others" routes=1000`}, false},
	} {
		none := l.update(bound(step.bound...))
		var lines []string
		if text := strings.TrimSpace(log.String()); text != "" {
			lines = strings.Split(text, "\n")
		}
		if got := lines[said:]; !slices.Equal(got, step.want) || none != step.none {
			t.Errorf("got\n%s\nwant\n%s\nand that none is left: %v", strings.Join(got, "\n"), strings.Join(step.want, "\n"), none)
		}
		said = len(lines)
	}
	l.update(bound(many...))
	if got := strings.Split(strings.TrimSpace(log.String()), "\n")[said:]; len(got) != maxSocketLines+1 || !strings.Contains(got[maxSocketLines], "sockets=901") {
		t.Errorf("of 1001 there are %d lines, the last is %s", len(got), got[len(got)-1])
	}
}

// TestSocketLogBegins: what comes while the start is logged is left to update, whose state is never older than that of begin.
func TestSocketLogBegins(t *testing.T) {
	l := &socketLog{log: slog.New(slog.DiscardHandler)}
	l.begin(func() []proxy.BoundListener {
		if l.mu.TryLock() {
			l.mu.Unlock()
			t.Error("an update may pass between what is bound and that it is logged")
		}
		return nil
	})
}

// TestProxyWarnsOfNoListener: a proxy says so when its last listener has gone, as run does.
func TestProxyWarnsOfNoListener(t *testing.T) {
	var log testkit.Log
	p, err := newRemoteProxy(ProxyOptions{Controller: "127.0.0.1:1", Gateway: "shop/web", AdminAddress: "127.0.0.1:0", HealthAddress: "127.0.0.1:0", Stderr: &log, EngineFlags: EngineFlags{AccessLog: "off", RequestIDs: defaultRequestIDs, Stdout: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard()
	defer p.proxy.Shutdown(t.Context())
	p.sockets.begin(p.proxy.Bound)
	listener := &config.Listener{Key: config.ListenerKey("shop", "web", "http"), Gateway: "shop/web", Name: "http", Port: freePort(t), Protocol: config.Protocol_PROTOCOL_HTTP}
	if r := p.apply(&config.Update{Generation: 1, Upserts: []*config.Resource{{Kind: &config.Resource_Listener{Listener: listener}}}}); len(r.Listeners) > 0 {
		t.Fatal(r.Listeners)
	}
	const warning = `level=WARN msg="no listener of the Gateway is served; its status reports why" gateway=shop/web`
	if strings.Contains(log.String(), warning) || !strings.Contains(log.String(), "msg=listening ") {
		t.Errorf("with a listener:\n%s", log.String())
	}
	p.apply(&config.Update{Generation: 2, Removals: []config.ID{{Kind: config.KindListener, Key: listener.Key}}})
	if n := strings.Count(log.String(), warning); n != 1 {
		t.Errorf("%d warnings when it has gone:\n%s", n, log.String())
	}
}

// freePort is a port of TCP that nobody has for now.
func freePort(t *testing.T) uint32 {
	t.Helper()
	return uint32(ports.Free(t))
}

var ports = testkit.Ports{Low: 6500, High: 8000}

// TestRunFollowsListeners: run logs which listeners are served and no longer served at any time, and that a document can be used again.
func TestRunFollowsListeners(t *testing.T) {
	port := func() string { return fmt.Sprint(freePort(t)) }
	path := filepath.Join(t.TempDir(), "all.yaml")
	write := func(listeners ...string) {
		text := `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
`
		if listeners != nil {
			text += `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: moongate
  listeners:
  - ` + strings.Join(listeners, "\n  - ") + "\n"
		}
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	first, second := port(), port()
	http := func(name, port string) string { return "{name: " + name + ", protocol: HTTP, port: " + port + "}" }
	https := "{name: tls, protocol: HTTPS, port: " + port() + ", tls: {certificateRefs: [{name: none}]}}"
	write("{name: a, protocol: HTTP, port: 0}")
	log := &testkit.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, RunOptions{Files: []string{path}, Bind: []string{"127.0.0.1"}, AdminAddress: "127.0.0.1:0", Stderr: log, EngineFlags: EngineFlags{AccessLog: "off", RequestIDs: defaultRequestIDs, Stdout: io.Discard}})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	at := 0
	says := func(what string, want ...string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool {
			for _, w := range want {
				if !strings.Contains(log.String()[at:], w) {
					return false
				}
			}
			return true
		})
		at = len(log.String())
	}
	says("nothing is served at the start", "cannot use", "no listener is served", "msg=ready")
	write(http("a", first), https)
	says("the manifest is mended", `msg="can be used again" what="`+path+`:6: Gateway default/web"`, "msg=listening address=127.0.0.1:"+first+" protocol=HTTP listeners=default/web/a", "InvalidCertificateRef")
	write(http("b", second), http("a", first), https)
	says("a listener comes", "msg=listening address=127.0.0.1:"+second+" protocol=HTTP listeners=default/web/b")
	write(http("b", first), https)
	says("another moves", `msg="no longer listening" address=127.0.0.1:`+second, `msg="listening for other listeners" address=127.0.0.1:`+first+" protocol=HTTP added=default/web/b removed=default/web/a")
	write()
	says("the last Gateway goes", `msg="no longer listening" address=127.0.0.1:`+first+" protocol=HTTP listeners=default/web/b", "no listener is served")
	text := log.String()
	if strings.Contains(text, "default/web/tls") {
		t.Errorf("an HTTPS listener without a certificate is served:\n%s", text)
	}
	if n := strings.Count(text, "reason=InvalidCertificateRef"); n != 1 {
		t.Errorf("what is wrong with its certificate is logged %d times, though only the number of listeners before it has changed:\n%s", n, text)
	}
}
