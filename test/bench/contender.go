//go:build linux

package main

import (
	"embed"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/moongate-dev/moongate/test/bench/proc"
)

//go:embed config
var configs embed.FS

var templates = template.Must(template.ParseFS(configs, "config/*.tmpl"))

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// variant is what differs between the workloads in the configuration of a contender.
type variant struct {
	// HAProxyBuffer is tune.bufsize in bytes, chosen as the best of 16, 32, 64 and 128 KiB for
	// the workload; 0 is HAProxy's own default, 16 KiB.
	HAProxyBuffer int
	// NginxBuffer is the proxy_buffer_size of the stream module in bytes, the best of 16, 64 and 128 KiB for the workload; 0 is nginx's own default, 16 KiB.
	NginxBuffer int
	AccessLog   bool
	Layer4      bool   // listeners that forward TCP, UDP and, by the server name, TLS
	Routes      int    // HTTPRoutes beside the two that are measured; Moongate only
	Rules       []rule // of one more HTTPRoute; Moongate only
}

// contender is a running proxy.
type contender struct {
	*child
	dir        string // its configuration and logs
	pids       []int  // all its processes
	plain, tls netip.AddrPort
	grpc       netip.AddrPort // HTTP/2 without TLS, which not everyone serves beside HTTP/1.1
	admin      netip.AddrPort // of Moongate
	// With variant.Layer4.
	tcp, passthrough, udp netip.AddrPort
}

// configuration is what the templates see.
type configuration struct {
	variant
	Dir              string
	Plain, TLS, GRPC uint16
	TCP, Passthrough uint16
	UDP              uint16
	Origin           originPorts
	StreamModule     string // file of nginx's stream module; none where it is part of nginx
	Certificate, Key string // base64 of PEM
	Authority        string // the certificate as PEM
	Root             bool
	admin            netip.AddrPort // of Moongate, which takes it as a flag
}

// starters make the command of a contender from a configuration that they write into its folder.
var starters = map[string]func(b *bench, c *configuration) (*exec.Cmd, error){
	"nginx": func(_ *bench, c *configuration) (*exec.Cmd, error) {
		path := filepath.Join(c.Dir, "nginx.conf")
		if c.Layer4 {
			c.StreamModule, _ = streamModule()
		}
		return exec.Command(program("nginx"), "-p", c.Dir, "-c", path, "-e", filepath.Join(c.Dir, "error.log")),
			render(path, "nginx.conf.tmpl", c)
	},
	"haproxy": func(_ *bench, c *configuration) (*exec.Cmd, error) {
		path := filepath.Join(c.Dir, "haproxy.cfg")
		return exec.Command(program("haproxy"), "-db", "-f", path), render(path, "haproxy.cfg.tmpl", c)
	},
	"caddy": func(b *bench, c *configuration) (*exec.Cmd, error) {
		path := filepath.Join(c.Dir, "caddy.json")
		cmd := exec.Command(b.caddy, "run", "--config", path)
		cmd.Env = append(os.Environ(), "HOME="+c.Dir, "XDG_CONFIG_HOME="+c.Dir, "XDG_DATA_HOME="+c.Dir)
		return cmd, render(path, "caddy.json.tmpl", c)
	},
	"moongate": func(b *bench, c *configuration) (*exec.Cmd, error) { return startMoongate(b.moongate, c) },
	baseline:   func(b *bench, c *configuration) (*exec.Cmd, error) { return startMoongate(b.baseline, c) },
}

// floor is the contender that does no more than forward: package forward.
const floor = "floor"

// baseline is the contender that -baseline adds: another build of Moongate.
const baseline = "baseline"

func startMoongate(binary string, c *configuration) (*exec.Cmd, error) {
	folder := filepath.Join(c.Dir, "manifests")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := writeRoutes(folder, c.Routes); err != nil {
		return nil, err
	}
	if err := writeRules(folder, c.Rules); err != nil {
		return nil, err
	}
	accessLog := "off"
	if c.AccessLog {
		accessLog = filepath.Join(c.Dir, "access.log")
	}
	admin, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	c.admin = netip.AddrPortFrom(loopback, admin[0])
	cmd := exec.Command(binary, "run", "-f", folder, "--access-log", accessLog, "--admin-address", c.admin.String(), "--drain-timeout", "1s")
	return cmd, render(filepath.Join(folder, "gateway.yaml"), "moongate.yaml.tmpl", c)
}

// start runs a contender pinned to the proxy CPU and waits until it serves.
func (b *bench) start(name string, v variant) (*contender, error) {
	if name == floor {
		return b.startFloor()
	}
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	if err := b.cert.write(dir); err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	config := &configuration{
		variant: v, Dir: dir, Plain: ports[0], TLS: ports[1], GRPC: ports[2], TCP: ports[3], Passthrough: ports[4], UDP: ports[3], Origin: b.origin,
		Certificate: encode(b.cert.chain), Key: encode(b.cert.key), Authority: string(b.cert.chain), Root: os.Geteuid() == 0,
	}
	cmd, err := starters[name](b, config)
	if err != nil {
		return nil, err
	}
	process, err := b.spawn(name, b.proxyCPU, cmd)
	if err != nil {
		return nil, err
	}
	c := &contender{
		child: process, dir: dir,
		plain: netip.AddrPortFrom(loopback, ports[0]), tls: netip.AddrPortFrom(loopback, ports[1]), grpc: netip.AddrPortFrom(loopback, ports[2]),
		tcp: netip.AddrPortFrom(loopback, ports[3]), passthrough: netip.AddrPortFrom(loopback, ports[4]),
		udp:   netip.AddrPortFrom(loopback, ports[3]),
		admin: config.admin,
	}
	if err := b.waitReady(c); err != nil {
		return nil, err
	}
	c.pids, err = proc.Tree(c.cmd.Process.Pid)
	return c, err
}

// streamModule is the file of nginx's stream module, "" where nginx was built with it; false where there is none.
func streamModule() (string, bool) {
	out, _ := exec.Command(program("nginx"), "-V").CombinedOutput()
	options := strings.Fields(string(out))
	if slices.Contains(options, "--with-stream") {
		return "", true
	}
	for _, option := range options {
		if dir, ok := strings.CutPrefix(option, "--modules-path="); ok {
			path := filepath.Join(dir, "ngx_stream_module.so")
			_, err := os.Stat(path)
			return path, err == nil
		}
	}
	return "", false
}

// startFloor starts package forward as a contender.
func (b *bench) startFloor() (*contender, error) {
	role, err := b.startRole("role-floor", b.proxyCPU, netip.AddrPortFrom(loopback, b.origin.HTTP))
	if err != nil {
		return nil, err
	}
	c := &contender{child: role.child, pids: []int{role.cmd.Process.Pid}}
	c.name = floor
	return c, role.answer(&c.plain)
}

// startAll starts every contender but those that cannot do the work.
func (b *bench) startAll(t *traffic) ([]*contender, error) {
	var all []*contender
	for _, name := range b.contenders {
		if t.without(name) {
			continue
		}
		c, err := b.start(name, t.variant)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// waitReady asks until both listeners answer 200 for what will be measured.
func (b *bench) waitReady(c *contender) error {
	deadline := time.After(time.Minute)
	for {
		err := probe(c.plain, false)
		if err == nil {
			if err = probe(c.tls, true); err == nil {
				return nil
			}
		}
		select {
		case <-c.done:
			return fmt.Errorf("%s ended: %s", c.name, c.output())
		case <-deadline:
			return fmt.Errorf("%s does not serve after a minute (%w): %s", c.name, err, c.output())
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func probe(addr netip.AddrPort, secure bool) error {
	answers, err := exchange(addr, secure, [][]byte{getSmall})
	if err != nil {
		return err
	}
	if line := answers[0].StatusLine; line != "HTTP/1.1 200 OK" {
		return fmt.Errorf("answer %q", line)
	}
	return nil
}

func render(path, name string, data any) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := templates.ExecuteTemplate(f, name, data); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// The ports that contenders listen on are below those that Linux gives to connections (net.ipv4.ip_local_port_range), of which there are tens of thousands: one of
// them could take a port before its contender does.
const firstPort, endPort = 20_000, 32_768

// freePorts finds ports that nobody listens on now; they differ from each other.
func freePorts(n int) ([]uint16, error) {
	var ports []uint16
	var refused error
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		port := uint16(firstPort + rand.IntN(endPort-firstPort))
		l, err := net.Listen("tcp4", netip.AddrPortFrom(loopback, port).String())
		if err != nil {
			refused = err
			continue
		}
		defer l.Close()
		ports = append(ports, port)
	}
	return nil, refused
}
