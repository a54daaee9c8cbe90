package proxyprotocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"
)

// v2 is a header of version 2 with the right length.
func v2(command, family byte, block string) string {
	b := append([]byte(startV2), command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(block)))
	return string(append(b, block...))
}

const (
	block4 = "\xc0\x00\x02\x01\x0a\x00\x00\x01\x12\x34\x01\xbb" // 192.0.2.1:4660 to 10.0.0.1:443
	block6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x12\x34\x01\xbb"
	mapped6 = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01\x12\x34\x01\xbb"
)

// summed is a header of version 2 over IPv4 with other TLVs around its checksum, which is off by wrong.
func summed(wrong uint32) string {
	b := []byte(v2(0x21, 0x11, block4+"\x04\x00\x02zz"+"\x03\x00\x04\x00\x00\x00\x00"+"\x02\x00\x01a"))
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) + wrong
	binary.BigEndian.PutUint32(b[16+12+5+3:], sum)
	return string(b)
}

var headers = []struct {
	name, header string
	client       string // "" where the connection's own counts
	err          error
}{
	{name: "1 over IPv4", header: "PROXY TCP4 192.0.2.1 10.0.0.1 4660 443\r\n", client: "192.0.2.1:4660"},
	{name: "1 over IPv6", header: "PROXY TCP6 2001:db8::1 2001:db8::2 4660 443\r\n", client: "[2001:db8::1]:4660"},
	{name: "1 with IPv4 in IPv6", header: "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 4660 443\r\n", client: "192.0.2.1:4660"},
	{name: "1 longest", header: "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		client: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
	{name: "1 unknown", header: "PROXY UNKNOWN\r\n"},
	{name: "1 unknown with addresses", header: "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"},
	{name: "1 without CR", header: "PROXY TCP4 192.0.2.1 10.0.0.1 4660 443\n", err: errLine},
	{name: "1 with two CR", header: "PROXY TCP4 192.0.2.1 10.0.0.1 4660 443\r\r\n", err: errLine},
	{name: "1 with two spaces", header: "PROXY TCP4  192.0.2.1 10.0.0.1 4660 443\r\n", err: errLine},
	{name: "1 with a field more", header: "PROXY TCP4 192.0.2.1 10.0.0.1 4660 443 1\r\n", err: errLine},
	{name: "1 with a name", header: "PROXY TCP4 localhost 10.0.0.1 4660 443\r\n", err: errLine},
	{name: "1 with a leading zero", header: "PROXY TCP4 192.0.2.1 10.0.0.1 04660 443\r\n", err: errLine},
	{name: "1 with a great port", header: "PROXY TCP4 192.0.2.1 10.0.0.1 65536 443\r\n", err: errLine},
	{name: "1 without a port", header: "PROXY TCP4 192.0.2.1 10.0.0.1 4660 \r\n", err: errLine},
	{name: "1 with a sign", header: "PROXY TCP4 192.0.2.1 10.0.0.1 +460 443\r\n", err: errLine},
	{name: "1 with the other family", header: "PROXY TCP4 2001:db8::1 2001:db8::2 4660 443\r\n", err: errLine},
	{name: "1 with the other family of 6", header: "PROXY TCP6 192.0.2.1 10.0.0.1 4660 443\r\n", err: errLine},
	{name: "1 with a zone", header: "PROXY TCP6 fe80::1%eth0 2001:db8::2 4660 443\r\n", err: errLine},
	{name: "1 in lower case", header: "proxy TCP4 192.0.2.1 10.0.0.1 4660 443\r\n", err: errMissing},
	{name: "1 too long", header: "PROXY UNKNOWN " + strings.Repeat("x", 92) + "\r\n", err: errLine},
	{name: "1 without end", header: "PROXY TCP4 " + strings.Repeat("1", maxV1), err: errLine},

	{name: "2 over IPv4", header: v2(0x21, 0x11, block4), client: "192.0.2.1:4660"},
	{name: "2 over IPv6", header: v2(0x21, 0x21, block6), client: "[2001:db8::1]:4660"},
	{name: "2 with IPv4 in IPv6", header: v2(0x21, 0x21, mapped6), client: "192.0.2.1:4660"},
	{name: "2 local", header: v2(0x20, 0x00, "")},
	{name: "2 local with addresses and garbage", header: v2(0x20, 0x11, block4+"\x01")},
	{name: "2 local of an unknown family", header: v2(0x20, 0x77, "")},
	{name: "2 unspecified", header: v2(0x21, 0x00, "xyz")},
	{name: "2 of UNIX", header: v2(0x21, 0x31, strings.Repeat("u", 216))},
	{name: "2 of UDP", header: v2(0x21, 0x12, block4)},
	{name: "2 with TLVs", header: v2(0x21, 0x11, block4+"\xea\x00\x03\x01ab"+"\x04\x00\x00"), client: "192.0.2.1:4660"},
	{name: "2 longest", header: v2(0x21, 0x11, block4+"\x04\x0f\xe1"+strings.Repeat("n", 4065)), client: "192.0.2.1:4660"},
	{name: "2 with a checksum", header: summed(0), client: "192.0.2.1:4660"},
	{name: "2 with a wrong checksum", header: summed(1), err: errChecksum},
	{name: "2 with a checksum of 3 bytes", header: v2(0x21, 0x11, block4+"\x03\x00\x03abc"), err: errChecksum},
	{name: "2 that ends within a TLV's head", header: v2(0x21, 0x11, block4+"\x04\x00"), err: errTLV},
	{name: "2 that ends within a TLV", header: v2(0x21, 0x11, block4+"\x04\x00\x02a"), err: errTLV},
	{name: "2 short for IPv4", header: v2(0x21, 0x11, block4[:11]), err: errShort},
	{name: "2 short for IPv6", header: v2(0x21, 0x21, block6[:35]), err: errShort},
	{name: "2 short for UNIX", header: v2(0x21, 0x31, "u"), err: errShort},
	{name: "2 of an unknown family", header: v2(0x21, 0x41, block4), err: errFamily},
	{name: "2 of an unknown transport", header: v2(0x21, 0x13, block4), err: errFamily},
	{name: "2 of another version", header: v2(0x11, 0x11, block4), err: errVersion},
	{name: "2 with an unknown command", header: v2(0x22, 0x11, block4), err: errVersion},
	{name: "2 too long", header: v2(0x21, 0x11, strings.Repeat("x", 4081)), err: errTooLong},

	{name: "a request", header: "GET / HTTP/1.1\r\n", err: errMissing},
	{name: "HTTP/2", header: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", err: errMissing},
	{name: "a ClientHello", header: "\x16\x03\x01\x02\x00", err: errMissing},
}

// TestParse: each header says the client or what is wrong, whatever follows, and is not complete before its last byte.
func TestParse(t *testing.T) {
	for _, tc := range headers {
		for _, after := range []string{"", "\n\r\x16GET"} {
			a, n, err := Parse([]byte(tc.header + after))
			if !errors.Is(err, tc.err) || err == nil && n != len(tc.header) {
				t.Errorf("%s: %d of %d bytes, %v", tc.name, n, len(tc.header), err)
			}
			if want, _ := netip.ParseAddrPort(tc.client); a.Client != want || a.Destination.IsValid() != want.IsValid() {
				t.Errorf("%s: addresses %v", tc.name, a)
			}
		}
		for n := range tc.header {
			if _, _, err := Parse([]byte(tc.header[:n])); err != ErrIncomplete && (tc.err == nil || err != tc.err) {
				t.Errorf("%s, %d bytes of it: %v", tc.name, n, err)
			}
		}
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	b := []byte(summed(0))
	if n := testing.AllocsPerRun(100, func() { Parse(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzHeader: whatever comes, a header that is accepted is bounded, its rest does not count, and no part of it was accepted or refused
// in another way before.
func FuzzHeader(f *testing.F) {
	for _, tc := range headers {
		f.Add([]byte(tc.header + "rest"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, n, err := Parse(b)
		if err == ErrIncomplete && len(b) >= MaxHeader {
			t.Fatal("more than the longest header is wanted")
		}
		if err != nil {
			if n != 0 || a != (Addresses{}) {
				t.Fatalf("%v says %v and %d", err, a, n)
			}
			return
		}
		if n <= 0 || n > len(b) || n > MaxHeader || a.Client.IsValid() != a.Destination.IsValid() {
			t.Fatalf("%d of %d bytes, addresses %v", n, len(b), a)
		}
		for _, at := range []netip.AddrPort{a.Client, a.Destination} {
			if at.Addr().Is4In6() || at.Addr().Zone() != "" {
				t.Fatalf("address %v", at)
			}
		}
		for _, part := range [][]byte{b[:n], append(bytes.Clone(b[:n]), "other"...)} {
			if c, m, err := Parse(part); c != a || m != n || err != nil {
				t.Fatalf("with another rest: %v, %d, %v", c, m, err)
			}
		}
		for i := range n {
			if _, _, err := Parse(b[:i]); err != ErrIncomplete {
				t.Fatalf("the first %d bytes: %v", i, err)
			}
		}
	})
}
