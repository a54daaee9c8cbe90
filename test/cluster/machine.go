package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/test/cluster/pki"
	"github.com/moongate-dev/moongate/test/cluster/plane"
)

// prepareMachine makes the namespaces that the process was born into usable: a
// private place for files, its own view of processes, and the addresses and
// routes of a host.
func (u *universe) prepareMachine() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount namespace private: %w", err)
	}
	if err := unix.Mount("tmpfs", u.cluster.private(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
		return fmt.Errorf("mount the private folder: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte(hostName(0))); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("let the host route between pods: %w", err)
	}
	return u.prepareNetwork()
}

func (u *universe) prepareNetwork() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	for _, text := range u.hostAddresses() {
		address, err := netlink.ParseAddr(text + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(loopback, address); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	source := net.IP(plane.HostAddress(0).AsSlice())
	routes := []netlink.Route{
		// The service proxy rewrites what goes to a Service; it needs a way out to be
		// rewritten, and the host's own address as source.
		{LinkIndex: loopback.Attrs().Index, Dst: ipNet(plane.Services), Src: source, Scope: netlink.SCOPE_LINK},
		// Load balancer addresses are the host's: what no Service claims is refused, not lost.
		{LinkIndex: loopback.Attrs().Index, Dst: ipNet(plane.LoadBalancers), Src: source, Scope: netlink.SCOPE_HOST,
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL},
	}
	for _, route := range routes {
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("route %s: %w", route.Dst, err)
		}
	}
	return nil
}

func (u *universe) hostAddresses() []string {
	var all []string
	for i := range u.Nodes {
		all = append(all, plane.HostAddress(i).String())
	}
	return all
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(prefix.Addr().AsSlice()), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// relay lets the API server be reached at the same loopback port from the
// machine, whose listener up has passed on, and from the cluster's network, so that one
// kubeconfig serves both.
func (u *universe) relay(ctx context.Context) error {
	outside, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(u.Port))
	inside, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	target := netip.AddrPortFrom(plane.HostAddress(0), plane.APIPort).String()
	for _, listener := range []net.Listener{outside, inside} {
		context.AfterFunc(ctx, func() { listener.Close() })
		go func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}
				go relayOne(client.(*net.TCPConn), target)
			}
		}()
	}
	pair := pki.Pair{Cert: filepath.Join(u.ca.Dir, "admin.crt"), Key: filepath.Join(u.ca.Dir, "admin.key")}
	return plane.WriteKubeconfig(u.cluster.kubeconfig(), "https://"+address, u.ca, pair)
}

func relayOne(client *net.TCPConn, target string) {
	defer client.Close()
	connection, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	server := connection.(*net.TCPConn)
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(server, client)
		server.CloseWrite()
	})
	both.Go(func() {
		io.Copy(client, server)
		client.CloseWrite()
	})
	both.Wait()
}

// control serves the verbs stop, kill, start and parts.
func (u *universe) control(ctx context.Context) error {
	listener, err := net.Listen("unix", u.cluster.socket())
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /parts", func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range u.plane.Parts() {
			state := "stopped"
			if part.Running() {
				state = "running"
			}
			fmt.Fprintf(w, "%-24s %s\n", part.Name, state)
		}
	})
	mux.HandleFunc("POST /parts/{part}/{verb}", u.controlPart)
	server := &http.Server{Handler: mux, ErrorLog: u.log}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			u.fail(err)
		}
	}()
	return nil
}

func (u *universe) controlPart(w http.ResponseWriter, r *http.Request) {
	for _, part := range u.plane.Parts() {
		if part.Name != r.PathValue("part") {
			continue
		}
		switch r.PathValue("verb") {
		case "stop":
			part.Stop(syscall.SIGTERM)
		case "kill":
			part.Stop(syscall.SIGKILL)
		case "start":
			if err := part.Start(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		default:
			http.NotFound(w, r)
		}
		return
	}
	http.Error(w, "no part is named "+r.PathValue("part"), http.StatusNotFound)
}
