// Package proxyprotocol reads and writes the header of the PROXY protocol, versions 1 and 2, by which a load balancer
// passes on the address of the client (https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt). It is separate
// from the connections so that a fuzz target can test it with every input.
//
// It must never do I/O, nor import anything of Moongate.
package proxyprotocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strconv"
)

// MaxHeader is the largest size of a header in bytes, including everything after the addresses in version 2. The
// longest header of version 1 has 107 bytes.
const MaxHeader = 4096

// maxV1 is the longest header of version 1, with its end of line.
const maxV1 = 107

const (
	startV1 = "PROXY "
	startV2 = "\r\n\r\n\x00\r\nQUIT\n"
	fixedV2 = 16 // bytes of version 2 before the addresses
)

// ErrIncomplete means that the header continues after what was read.
var ErrIncomplete = errors.New("the PROXY header is not complete")

// What is wrong with a header.
var (
	errMissing  = errors.New("the connection does not begin with a PROXY header")
	errTooLong  = errors.New("the PROXY header is longer than " + strconv.Itoa(MaxHeader) + " bytes")
	errLine     = errors.New("the PROXY header of version 1 is malformed")
	errVersion  = errors.New("the PROXY header has an unknown version or command")
	errFamily   = errors.New("the PROXY header has an unknown address family or transport")
	errShort    = errors.New("the PROXY header is too short for its addresses")
	errTLV      = errors.New("the PROXY header ends within a TLV")
	errChecksum = errors.New("the checksum of the PROXY header is wrong")
)

// Addresses are what a header says of a connection: from which address the client has connected, and to which one. Both
// are the zero value if the header has no IP addresses with TCP (LOCAL, UNKNOWN, other families): then the connection's
// own addresses count.
type Addresses struct{ Client, Destination netip.AddrPort }

// Parse parses the header at the beginning of b, and returns its addresses and its length. The error is ErrIncomplete if
// the header may continue after b, which is impossible if b has MaxHeader bytes, and another one if there is no valid
// header. Parse does not allocate for version 2.
func Parse(b []byte) (a Addresses, n int, err error) {
	switch {
	case begins(b, startV2):
		return parseV2(b)
	case begins(b, startV1):
		return parseV1(b)
	}
	return a, 0, errMissing
}

// begins reports whether b begins with start, as far as it goes.
func begins(b []byte, start string) bool {
	n := min(len(b), len(start))
	return string(b[:n]) == start[:n]
}

// parseV1 parses "PROXY TCP4 <source> <destination> <source port> <destination port>\r\n".
func parseV1(b []byte) (a Addresses, n int, err error) {
	line, _, ended := bytes.Cut(b[:min(len(b), maxV1)], []byte("\n"))
	switch {
	case !ended && len(b) >= maxV1:
		return a, 0, errLine
	case !ended:
		return a, 0, ErrIncomplete
	}
	n = len(line) + 1
	line, returned := bytes.CutSuffix(line, []byte("\r"))
	if !returned || bytes.IndexByte(line, '\r') >= 0 {
		return a, 0, errLine
	}
	if family, _, _ := bytes.Cut(line[len(startV1):], []byte(" ")); string(family) == "UNKNOWN" {
		return a, n, nil // the rest of the line is ignored
	}
	fields := bytes.Split(line[len(startV1):], []byte(" "))
	if len(fields) != 5 {
		return a, 0, errLine
	}
	client, ok := addressV1(fields[0], fields[1], fields[3])
	destination, too := addressV1(fields[0], fields[2], fields[4])
	if !ok || !too {
		return a, 0, errLine
	}
	return Addresses{client, destination}, n, nil
}

// addressV1 parses an address and a port of the family TCP4 or TCP6.
func addressV1(family, address, port []byte) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(string(address))
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	switch string(family) {
	case "TCP4":
		if !a.Is4() {
			return netip.AddrPort{}, false
		}
	case "TCP6":
		if !a.Is6() {
			return netip.AddrPort{}, false
		}
	default:
		return netip.AddrPort{}, false
	}
	p, ok := portV1(port)
	return netip.AddrPortFrom(a.Unmap(), p), ok
}

// portV1 parses a decimal number up to 65535 without leading zeros.
func portV1(digits []byte) (uint16, bool) {
	if len(digits) == 0 || len(digits) > 5 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	port := 0
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		port = port*10 + int(d-'0')
	}
	return uint16(port), port <= 65535
}

// The commands of version 2, with the version, and the families with their transport.
const (
	commandLocal = 0x20
	commandProxy = 0x21

	familyUnspecified  = 0x00
	familyTCPv4        = 0x11
	familyUDPv4        = 0x12
	familyTCPv6        = 0x21
	familyUDPv6        = 0x22
	familyUnixStream   = 0x31
	familyUnixDatagram = 0x32
)

// Sizes of parts of version 2 in bytes.
const (
	addressesV4   = 12 // both addresses and both ports
	addressesV6   = 36
	addressesUnix = 216
	tlvHeader     = 3 // type and length
	checksumBytes = 4
)

// tlvChecksum is the type of a CRC-32C of the header.
const tlvChecksum = 0x03

func parseV2(b []byte) (a Addresses, n int, err error) {
	if len(b) < fixedV2 {
		return a, 0, ErrIncomplete
	}
	command, family := b[12], b[13]
	if command != commandLocal && command != commandProxy {
		return a, 0, errVersion
	}
	if n = fixedV2 + int(binary.BigEndian.Uint16(b[14:])); n > MaxHeader {
		return a, 0, errTooLong
	}
	if len(b) < n {
		return a, 0, ErrIncomplete
	}
	if command == commandLocal { // the rest of the header is ignored (section 2.2)
		return a, n, nil
	}
	if a, err = proxied(b[:n], family); err != nil {
		return Addresses{}, 0, err
	}
	return a, n, nil
}

// proxied parses the addresses of a complete version 2 header with the command PROXY.
func proxied(header []byte, family byte) (a Addresses, err error) {
	block, addresses := header[fixedV2:], 0
	switch family {
	case familyUnspecified:
		return a, nil // the rest is skipped
	case familyTCPv4, familyUDPv4:
		addresses = addressesV4
	case familyTCPv6, familyUDPv6:
		addresses = addressesV6
	case familyUnixStream, familyUnixDatagram:
		addresses = addressesUnix
	default:
		return a, errFamily
	}
	if len(block) < addresses {
		return a, errShort
	}
	if err = checkTLVs(header, fixedV2+addresses); err != nil {
		return a, err
	}
	switch family {
	case familyTCPv4:
		a.Client = netip.AddrPortFrom(netip.AddrFrom4([4]byte(block)), binary.BigEndian.Uint16(block[8:]))
		a.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(block[4:])), binary.BigEndian.Uint16(block[10:]))
	case familyTCPv6:
		a.Client = netip.AddrPortFrom(netip.AddrFrom16([16]byte(block)).Unmap(), binary.BigEndian.Uint16(block[32:]))
		a.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(block[16:])).Unmap(), binary.BigEndian.Uint16(block[34:]))
	}
	return a, nil
}

// checkTLVs checks what follows the addresses of a header: that it is complete, and its checksum if it has one.
// Everything else is skipped.
func checkTLVs(header []byte, at int) error {
	for at < len(header) {
		if len(header)-at < tlvHeader {
			return errTLV
		}
		length := int(binary.BigEndian.Uint16(header[at+1:]))
		value := at + tlvHeader
		if len(header)-value < length {
			return errTLV
		}
		if header[at] == tlvChecksum && (length != checksumBytes || binary.BigEndian.Uint32(header[value:]) != checksum(header, value)) {
			return errChecksum
		}
		at = value + length
	}
	return nil
}

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	zeroChecksum [checksumBytes]byte
)

// checksum returns the checksum of a header with its checksum field at an offset treated as zero (section 2.2.3).
func checksum(header []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:at])
	sum = crc32.Update(sum, castagnoli, zeroChecksum[:])
	return crc32.Update(sum, castagnoli, header[at+checksumBytes:])
}
