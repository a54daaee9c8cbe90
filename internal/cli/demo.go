package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/source/files"
)

// The first ports that the demo tries; it uses the next free one.
const (
	demoHTTP    = 8080
	demoHTTPS   = 8443
	demoBackend = 9101
	demoTries   = 100
)

func newDemo(stdout, stderr io.Writer) *cobra.Command {
	o := RunOptions{EngineFlags: EngineFlags{Stdout: stdout}}
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Serve an example that you can edit",
		Long: `Writes an example into a folder, starts two small backends that answer with the request that they
received, serves the folder exactly as moongate run does, and prints curl commands to try.

Edit a file there and run curl again: the change is in force immediately. An edited file is never
overwritten; delete it to get the example back.`,
		Example: "  moongate demo\n  moongate demo --dir /tmp/try",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("admin-address") && !free(o.AdminAddress) {
				o.AdminAddress = "127.0.0.1:0" // another gateway may run on this host
			}
			return serving(stderr, func(ctx context.Context, log *observe.ProcessLog, hangup <-chan os.Signal) error {
				o.Stderr, o.Hangup = log, hangup
				return demo(ctx, dir, o)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "moongate-demo", "folder of the example")
	o.addFlags(cmd)
	return cmd
}

// demo writes the missing files of the example, starts its backends and serves it.
func demo(ctx context.Context, dir string, o RunOptions) error {
	e := example{dir: dir, bind: o.Bind}
	backends, err := e.prepare()
	if err != nil {
		return &exitError{exitProblems, err}
	}
	log := slog.New(slog.NewTextHandler(o.Stderr, nil))
	for _, b := range backends {
		server := serveEcho(b.name, b.listener, log)
		defer server.Close()
	}
	o.Files = []string{dir}
	ready := o.Ready
	o.Ready = func(r Running) {
		e.printUsage(o.Stdout, r)
		if ready != nil {
			ready(r)
		}
	}
	return Run(ctx, o)
}

// echoBackend is a backend and its open listening socket.
type echoBackend struct {
	name     string
	listener net.Listener
}

// prepare writes the files that the user has not edited, and opens the sockets of the backends.
func (e example) prepare() ([]echoBackend, error) {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	var backends []echoBackend
	fail := func(err error) ([]echoBackend, error) {
		for _, b := range backends {
			b.listener.Close()
		}
		return nil, err
	}
	known := e.read()
	values := exampleValues{HTTP: known.http, HTTPS: known.https, Loopback: len(e.bind) == 0}
	editedGateway, err := e.edited(exampleGateway)
	if err != nil {
		return nil, err
	}
	if !editedGateway || values.HTTPS == 0 {
		values.HTTP = nextFree(e.address(), demoHTTP)
		values.HTTPS = nextFree(e.address(), demoHTTPS)
	}
	editedBackends, err := e.edited(exampleBackends)
	if err != nil {
		return nil, err
	}
	for i, b := range []struct {
		name string
		port *int
	}{{"blue", &values.Blue}, {"green", &values.Green}} {
		at := known.backends[b.name]
		listener, err := listenBackend(at, demoBackend+i, editedBackends)
		if err != nil {
			return fail(fmt.Errorf("backend %s of %s: %w; free the port or name another there", b.name, e.path(exampleBackends), err))
		}
		if listener == nil {
			continue // the user has removed it
		}
		*b.port = listener.Addr().(*net.TCPAddr).Port
		backends = append(backends, echoBackend{b.name, listener})
	}
	for _, name := range []string{exampleGateway, exampleBackends, exampleRoutes} {
		if err := e.write(name, values); err != nil {
			return fail(err)
		}
	}
	if err := e.writeCertificate(); err != nil {
		return fail(err)
	}
	return backends, nil
}

// listenBackend opens the socket of a backend: at the address in an edited file, or else at the next free port.
func listenBackend(at netip.AddrPort, from int, edited bool) (net.Listener, error) {
	switch {
	case edited && at.IsValid():
		return net.Listen("tcp", at.String())
	case edited:
		return nil, nil
	}
	var err error
	for port := from; port < from+2*demoTries; port += 2 {
		var ln net.Listener
		if ln, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return ln, nil
		}
	}
	return nil, err
}

// exampleFacts contains what the files of the example define.
type exampleFacts struct {
	http, https int
	backends    map[string]netip.AddrPort
}

// read reads the files, as far as they exist and are valid.
func (e example) read() exampleFacts {
	facts := exampleFacts{backends: map[string]netip.AddrPort{}}
	source, err := files.New([]string{e.dir}, files.Options{})
	if err != nil {
		return facts
	}
	for _, o := range source.Load().Objects {
		switch object := o.Object.(type) {
		case *gwv1.Gateway:
			for _, l := range object.Spec.Listeners {
				switch {
				case object.Name == "demo" && l.Protocol == gwv1.HTTPProtocolType:
					facts.http = int(l.Port)
				case object.Name == "demo" && l.Protocol == gwv1.HTTPSProtocolType:
					facts.https = int(l.Port)
				}
			}
		case *discoveryv1.EndpointSlice:
			if at, ok := firstAddress(object); ok {
				facts.backends[object.Labels[discoveryv1.LabelServiceName]] = at
			}
		}
	}
	return facts
}

func firstAddress(slice *discoveryv1.EndpointSlice) (netip.AddrPort, bool) {
	if len(slice.Ports) == 0 || slice.Ports[0].Port == nil || len(slice.Endpoints) == 0 || len(slice.Endpoints[0].Addresses) == 0 {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(slice.Endpoints[0].Addresses[0])
	return netip.AddrPortFrom(ip, uint16(*slice.Ports[0].Port)), err == nil
}

// printUsage prints what to try.
func (e example) printUsage(w io.Writer, r Running) {
	facts := e.read()
	var b strings.Builder
	try := func(why, format string, args ...any) {
		fmt.Fprintf(&b, "\n  # %s\n  curl %s\n", why, fmt.Sprintf(format, args...))
	}
	dir := e.dir
	if !filepath.IsAbs(dir) {
		dir = "./" + filepath.Clean(dir)
	}
	fmt.Fprintf(&b, "\nThe example in %s is served. Try:\n", dir)
	if facts.http != 0 {
		site := "http://" + net.JoinHostPort(e.address(), fmt.Sprint(facts.http))
		if strings.Contains(site, "[") {
			site = "-g " + site // otherwise curl interprets the brackets as a range
		}
		host := "-H 'Host: " + exampleHost + "'"
		try("nine of ten answers come from blue, one from green", "-s %s %s/", host, site)
		try("a header chooses green", "-s %s -H 'X-Color: green' %s/", host, site)
		try("the backend receives /users", "-s %s %s/api/v1/users", host, site)
		try("301 to https", "-si %s %s/secure", host, site)
	}
	if facts.https != 0 {
		trust := "--cacert " + dir + "/" + exampleCAFile
		if edited, err := e.edited(exampleCertificate); edited || err != nil {
			trust = "-k"
		}
		try("the same over TLS", "-s %s --resolve %s:%d:%s https://%[2]s:%[3]d/", trust, exampleHost, facts.https, e.address())
	}
	fmt.Fprintf(&b, "\nEdit %s/%s and repeat the request: a change is served at once.\n", dir, exampleRoutes)
	fmt.Fprintf(&b, "To see what is served, and why: %s status --admin-address %s\n\n", os.Args[0], r.Admin)
	_, _ = io.WriteString(w, b.String()) // standard output may be closed
}

// nextFree returns the first port from port on on which nothing listens.
func nextFree(address string, port int) int {
	for p := port; p < port+demoTries; p++ {
		if free(net.JoinHostPort(address, fmt.Sprint(p))) {
			return p
		}
	}
	return port // the Gateway's status will report it
}

func free(address string) bool {
	if address == "" {
		address = admin.DefaultAddress
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return ln.Close() == nil
}
