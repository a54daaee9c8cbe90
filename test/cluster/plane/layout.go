// Package plane starts Kubernetes itself: etcd inside this process, and the API
// server, controller manager, scheduler and service proxy as programs beside it, each
// with its own identity and the flags below. It exists so that one place says how
// this cluster differs from a usual one. It runs no pods.
package plane

import "net/netip"

// The cluster's addresses. All live in a network namespace of the cluster's own,
// so they collide with nothing on the machine.
var (
	Hosts         = netip.MustParsePrefix("10.95.0.0/24")
	Services      = netip.MustParsePrefix("10.96.0.0/16")
	LoadBalancers = netip.MustParsePrefix("10.97.0.0/24")
	Pods          = netip.MustParsePrefix("10.244.0.0/16")

	DNS           = netip.MustParseAddr("10.96.0.10")
	serviceOfKube = netip.MustParseAddr("10.96.0.1") // the Service kubernetes: the first of Services
)

// Domain ends every Service's name.
const Domain = "cluster.local"

// APIPort is the API server's port on the first host's address.
const APIPort = 6443

// MaxHosts bounds the hosts: each has a /20 of Pods.
const MaxHosts = 16

// HostAddress is the address of host i, from 0.
func HostAddress(i int) netip.Addr {
	bytes := Hosts.Addr().As4()
	bytes[3] = byte(i + 1)
	return netip.AddrFrom4(bytes)
}

// HostPods are the addresses of the pods of host i.
func HostPods(i int) netip.Prefix {
	bytes := Pods.Addr().As4()
	bytes[2] = byte(i * 256 / MaxHosts)
	return netip.PrefixFrom(netip.AddrFrom4(bytes), 20)
}
