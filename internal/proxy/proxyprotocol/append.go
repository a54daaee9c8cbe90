package proxyprotocol

import (
	"encoding/binary"
	"net/netip"
)

// Version is the version of a header to write.
type Version uint8

// The versions.
const (
	V1 Version = 1
	V2 Version = 2
)

// Append appends the header of a connection that a client has made to a listener's address. If client is not valid, the
// connection is the sender's own (UNKNOWN, or LOCAL). If their families differ, both are written as IPv6.
func Append(dst []byte, v Version, client, listener netip.AddrPort) []byte {
	source, destination := client.Addr().Unmap().WithZone(""), listener.Addr().Unmap().WithZone("")
	if !destination.IsValid() { // it is no longer known
		destination = netip.IPv4Unspecified()
		if source.Is6() {
			destination = netip.IPv6Unspecified()
		}
	}
	if source.IsValid() && source.Is4() != destination.Is4() {
		source, destination = netip.AddrFrom16(source.As16()), netip.AddrFrom16(destination.As16())
	}
	if v == V1 {
		return appendV1(dst, netip.AddrPortFrom(source, client.Port()), netip.AddrPortFrom(destination, listener.Port()))
	}
	return appendV2(dst, netip.AddrPortFrom(source, client.Port()), netip.AddrPortFrom(destination, listener.Port()))
}

func appendV1(dst []byte, source, destination netip.AddrPort) []byte {
	dst = append(dst, startV1...)
	switch {
	case !source.Addr().IsValid():
		return append(dst, "UNKNOWN\r\n"...)
	case source.Addr().Is4():
		dst = append(dst, "TCP4 "...)
	default:
		dst = append(dst, "TCP6 "...)
	}
	dst = source.Addr().AppendTo(dst)
	dst = append(dst, ' ')
	dst = destination.Addr().AppendTo(dst)
	dst = append(dst, ' ')
	dst = appendDecimal(dst, source.Port())
	dst = append(dst, ' ')
	dst = appendDecimal(dst, destination.Port())
	return append(dst, "\r\n"...)
}

func appendDecimal(dst []byte, n uint16) []byte {
	var digits [5]byte
	at := len(digits)
	for {
		at--
		digits[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return append(dst, digits[at:]...)
		}
	}
}

func appendV2(dst []byte, source, destination netip.AddrPort) []byte {
	dst = append(dst, startV2...)
	switch {
	case !source.Addr().IsValid():
		return append(dst, commandLocal, familyUnspecified, 0, 0)
	case source.Addr().Is4():
		dst = append(dst, commandProxy, familyTCPv4, 0, addressesV4)
	default:
		dst = append(dst, commandProxy, familyTCPv6, 0, addressesV6)
	}
	dst = append(dst, source.Addr().AsSlice()...)
	dst = append(dst, destination.Addr().AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, source.Port())
	return binary.BigEndian.AppendUint16(dst, destination.Port())
}
