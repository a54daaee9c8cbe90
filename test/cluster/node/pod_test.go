//go:build cluster

package node

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNetworkIsTriedAgain: a pod whose sysctls could not be set has no network, however often that is tried, and keeps no address.
func TestNetworkIsTriedAgain(t *testing.T) {
	host := &Host{Address: netip.MustParseAddr("127.0.0.1"), addresses: newPool(netip.MustParsePrefix("198.51.100.0/30"))}
	p := newPod(&Node{Hosts: []*Host{host}, Dir: t.TempDir()}, host, &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.not_there", Value: "1"}}},
	}})
	for range 3 { // more than there are addresses
		err := p.connect()
		if err == nil || !strings.Contains(err.Error(), "sysctl net.ipv4.not_there") {
			t.Fatalf("error %v", err)
		}
		if p.address.IsValid() || p.network != nil || p.networked {
			t.Fatal("the pod has a network")
		}
	}
}
