package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

func (bs *backends) declareEndpoints(e *incremental.Engine) {
	bs.slices = incremental.NewIndex(bs.endpointSlices, "EndpointSlices by Service",
		func(n name, s *discoveryv1.EndpointSlice) []name {
			return []name{serviceOf(n, s)}
		})
	bs.labelled = incremental.NewIndex(bs.endpointSlices, "EndpointSlices by XBackend",
		func(n name, s *discoveryv1.EndpointSlice) []name {
			if label := s.Labels[v1alpha1.LabelXBackend]; label != "" {
				return []name{{n.Namespace, label}}
			}
			return nil
		})
	bs.endpoints = incremental.Map(e, "endpoints", bs.all,
		func(v *incremental.View, id backendID, b *config.Backend) (*config.Endpoints, bool) {
			if b.ExternalHostname != nil {
				return nil, false
			}
			return bs.endpointsOf(v, id), true
		}, sameMessage[*config.Endpoints])
}

// endpointsOf collects the endpoints of a Service's port, or of the pods that an XBackend selects, from all their EndpointSlices.
func (bs *backends) endpointsOf(v *incremental.View, id backendID) *config.Endpoints {
	k := parseBackendKey(id)
	var p *readPolicy
	if k.Policy != "" {
		p = bs.backendTraffic.read(v, parsePolicyPair(k.Policy))
	}
	oneFamily := func(found map[netip.AddrPort]behind, primary corev1.IPFamily) map[netip.AddrPort]behind {
		if p != nil && p.Compiled != nil && p.IPv4Only {
			leaveOutIPv6(found)
		}
		if primary == "" {
			return found
		}
		return ofOneFamily(found, primary)
	}
	var found map[netip.AddrPort]behind
	if k.XBackend {
		selected := incremental.Lookup(v, bs.labelled, name{k.Name.Namespace, v1alpha1.XBackendLabel(k.Name.Name)})
		x, _ := incremental.Fetch(v, bs.xbackends.all, k.Name)
		found = bs.gather(v, selected, func(slice *discoveryv1.EndpointSlice) []uint16 { return x.slicePorts(slice) })
		// A pod with both address families is listed twice.
		found = oneFamily(found, corev1.IPv4Protocol)
	} else {
		// The port of a slice is the Service's port with the same name.
		svc, _ := incremental.Fetch(v, bs.services.all, k.Name)
		port, _ := svc.port(k.Port, k.transport())
		found = bs.gather(v, incremental.Lookup(v, bs.slices, k.Name),
			func(slice *discoveryv1.EndpointSlice) []uint16 { return slicePorts(slice, port.Name, k.transport()) })
		found = oneFamily(found, svc.Family)
	}
	out := &config.Endpoints{Key: string(id)}
	zones := false
	if p != nil && p.Compiled != nil {
		found, zones = bs.asPolicy(v, k, p, found)
	}
	for at, b := range found {
		endpoint := &config.Endpoint{
			Address: at.Addr().String(), Port: uint32(at.Port()), Terminating: b.Terminating, Identity: b.Identity,
		}
		if zones {
			endpoint.Zone = b.Zone
		}
		out.Endpoints = append(out.Endpoints, endpoint)
	}
	slices.SortFunc(out.Endpoints, func(a, b *config.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// gather returns the endpoints of slices at their ports.
func (bs *backends) gather(v *incremental.View, slices []name, ports func(*discoveryv1.EndpointSlice) []uint16) map[netip.AddrPort]behind {
	found := map[netip.AddrPort]behind{}
	for _, n := range slices {
		slice, _ := incremental.Fetch(v, bs.endpointSlices, n)
		refused := bs.refusals.ofSlice(v, n, slice)
		for _, number := range ports(slice) {
			for i := range slice.Endpoints {
				addEndpoints(found, &slice.Endpoints[i], number, refused)
			}
		}
	}
	return found
}

// slicePorts returns the XBackend's port if the endpoints of the slice have it. If the slice was created for the XBackend, as in a
// cluster, its addresses are those of pods, and the XBackend's port applies whatever the slice contains, because the slice is
// updated later. Slices for an earlier XBackend of the same name are ignored.
func (x *xbackend) slicePorts(slice *discoveryv1.EndpointSlice) []uint16 {
	if uid, made := slice.Labels[v1alpha1.LabelXBackendUID]; made {
		if uid != string(x.UID) {
			return nil
		}
		return []uint16{uint16(x.Port)}
	}
	return slicePortsOf(slice, x.Port)
}

// slicePortsOf returns the number as a list if the slice has a TCP port with it, else nil.
func slicePortsOf(slice *discoveryv1.EndpointSlice, number int32) []uint16 {
	for _, p := range slice.Ports {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && ptr.Deref(p.Port, 0) == number {
			return []uint16{uint16(number)}
		}
	}
	return nil
}

// ofOneFamily returns the endpoints of a dual-stack Service's primary address family, because each pod is listed once for each
// family. Those of the other family are used while only they are ready, or while there are none of the first.
func ofOneFamily(found map[netip.AddrPort]behind, primary corev1.IPFamily) map[netip.AddrPort]behind {
	var families [2]map[netip.AddrPort]behind // primary, other
	var ready [2]bool
	for at, b := range found {
		i := 0
		if at.Addr().Is4() == (primary == corev1.IPv6Protocol) {
			i = 1
		}
		if families[i] == nil {
			families[i] = map[netip.AddrPort]behind{}
		}
		families[i][at] = b
		ready[i] = ready[i] || !b.Terminating
	}
	if len(families[0]) == 0 || ready[1] && !ready[0] {
		return families[1]
	}
	return families[0]
}

// slicePorts returns the numbers of a slice's ports with that name and protocol; an absent name equals an empty one.
func slicePorts(slice *discoveryv1.EndpointSlice, portName string, protocol corev1.Protocol) (out []uint16) {
	for _, p := range slice.Ports {
		fits := ptr.Deref(p.Protocol, corev1.ProtocolTCP) == protocol
		if number := ptr.Deref(p.Port, 0); fits && ptr.Deref(p.Name, "") == portName && number > 0 && number <= 65535 {
			out = append(out, uint16(number))
		}
	}
	return out
}

// addEndpoints adds the addresses of an endpoint that takes requests. If two slices differ about an address, as while one replaces
// the other, the ready one counts.
func addEndpoints(found map[netip.AddrPort]behind, e *discoveryv1.Endpoint, port uint16, refused []string) {
	ready := ptr.Deref(e.Conditions.Ready, true)
	terminating := ptr.Deref(e.Conditions.Terminating, false)
	serving := ptr.Deref(e.Conditions.Serving, ready)
	if !ready && !(serving && terminating) {
		return
	}
	for _, a := range e.Addresses {
		ip, err := netip.ParseAddr(a)
		if _, is := slices.BinarySearch(refused, a); is || err != nil {
			continue // of address type FQDN, which is deprecated and not supported; or refused
		}
		at := netip.AddrPortFrom(ip.Unmap(), port)
		if last, known := found[at]; !known || last.Terminating {
			found[at] = behind{!ready, identityOf(e), ptr.Deref(e.Zone, "")}
		}
	}
}

// behind describes the endpoint at an address.
type behind struct {
	Terminating bool
	Identity    uint64 // config.Endpoint.identity
	Zone        string
}

// leaveOutIPv6 removes IPv6 endpoints, for a policy without IPv6.
func leaveOutIPv6(found map[netip.AddrPort]behind) {
	for at := range found {
		if at.Addr().Is6() {
			delete(found, at)
		}
	}
}

// asPolicy returns the endpoints that a policy asks for: the address of the Service instead of its endpoints, if the policy routes
// by Service and the Service has an address. zones reports whether the zones of endpoints are used.
func (bs *backends) asPolicy(v *incremental.View, k backendKey, p *readPolicy, found map[netip.AddrPort]behind) (_ map[netip.AddrPort]behind, zones bool) {
	lb := p.Backend.GetLoadBalancer()
	zones = lb.GetPreferLocalZone() != nil || len(lb.GetZoneWeights()) > 0
	// If there are no endpoints, the proxy gives a better answer than the Service's address.
	if address, by := bs.serviceAddress(v, k, p); by && len(found) > 0 {
		return map[netip.AddrPort]behind{netip.AddrPortFrom(address, uint16(k.Port)): {}}, false
	}
	return found, zones
}

// serviceAddress returns the address of a Service to which a policy sends requests instead of its endpoints, if the policy routes by
// Service and the Service has an address that can be used.
func (bs *backends) serviceAddress(v *incremental.View, k backendKey, p *readPolicy) (_ netip.Addr, by bool) {
	// If endpoints are refused, the Service's address would lead to them too.
	if !p.ByService || k.XBackend || incremental.Count(v, bs.refusals.byService, k.Name) > 0 {
		return netip.Addr{}, false
	}
	svc, _ := incremental.Fetch(v, bs.services.all, k.Name)
	address, err := netip.ParseAddr(svc.ClusterIP) // a headless Service has "None"
	if err != nil || p.IPv4Only && address.Is6() {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

// identityOf returns a number that identifies a pod, because addresses of pods are reused; 0 if the endpoint is not a pod or does
// not name it.
func identityOf(e *discoveryv1.Endpoint) uint64 {
	if e.TargetRef == nil || e.TargetRef.UID == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(e.TargetRef.UID))
	return binary.BigEndian.Uint64(sum[:])
}
