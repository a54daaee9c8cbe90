package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is a pod's network namespace: one end of a veth pair, one address, and
// every route through the node. There is no bridge: packets between two pods are
// routed by the node too, so that the node's service rules see both directions.
type Network struct {
	namespace *os.File
	link      netlink.Link // the node's end
}

// NewNetwork makes a pod's network with the given address. gateway is an address
// of the node; link, at most 15 bytes, names the node's end of the pair.
func NewNetwork(link string, address, gateway netip.Addr) (*Network, error) {
	n := &Network{}
	made := make(chan error, 1)
	go func() {
		// Never unlocked: the thread of another namespace ends with this goroutine.
		runtime.LockOSThread()
		made <- n.make(link, address, gateway)
	}()
	if err := <-made; err != nil {
		return nil, errors.Join(fmt.Errorf("network of %s: %w", address, err), n.Close())
	}
	if err := n.route(link, address, gateway); err != nil {
		return nil, errors.Join(fmt.Errorf("route to %s: %w", address, err), n.Close())
	}
	return n, nil
}

func (n *Network) make(link string, address, gateway netip.Addr) error {
	node, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer node.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if n.namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: link, PeerNamespace: netlink.NsFd(int(node.Fd()))}
	pair.Name = "eth0"
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	inside, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(inside, &netlink.Addr{IPNet: hostNet(address)}); err != nil {
		return err
	}
	for _, l := range []netlink.Link{loopback, inside} {
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	index := inside.Attrs().Index
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: hostNet(gateway), Scope: netlink.SCOPE_LINK}); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: net.IP(gateway.AsSlice())})
}

// route runs in the node's namespace.
func (n *Network) route(link string, address, gateway netip.Addr) error {
	var err error
	if n.link, err = netlink.LinkByName(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(n.link); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: n.link.Attrs().Index, Dst: hostNet(address), Scope: netlink.SCOPE_LINK, Src: net.IP(gateway.AsSlice()),
	})
}

// SetSysctl sets a net.* sysctl of the namespace.
func (n *Network) SetSysctl(path, value string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(n.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- os.WriteFile(path, []byte(value), 0)
	}()
	return <-done
}

// Close ends the network: with its last process and this handle the kernel
// removes the namespace, and with it both ends of the pair and the route.
func (n *Network) Close() error {
	if n.namespace == nil {
		return nil
	}
	var err error
	if n.link != nil {
		err = netlink.LinkDel(n.link)
	}
	return errors.Join(err, n.namespace.Close())
}

func hostNet(address netip.Addr) *net.IPNet {
	bits := address.BitLen()
	return &net.IPNet{IP: net.IP(address.AsSlice()), Mask: net.CIDRMask(bits, bits)}
}
