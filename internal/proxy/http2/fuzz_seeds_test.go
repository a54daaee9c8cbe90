package http2

import (
	"strings"
	"testing"
)

// octets is one frame, byte for byte.
func octets(kind, flags byte, stream uint32, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}) + payload
}

// Frame types and flags as RFC 9113 section 6 numbers them.
const (
	rawData, rawHeaders, rawPriority, rawReset, rawSettings, rawPush, rawPing, rawGoAway, rawWindow, rawContinuation = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9

	flagEnd, flagAck, flagEndHeaders, flagPadded, flagPriority = 1, 1, 4, 8, 32
)

// Header blocks, byte for byte (RFC 7541): a GET, and a 200.
const (
	rawGet = "\x82\x86\x84\x41\x01h"
	rawOK  = "\x88"
)

// hostileFrames are what fuzzing should not have to find: each rule of RFC 9113 and RFC 7541 broken once. They stand behind
// requests and responses that are in order. begin opens streams 1 and 3 or answers them.
func hostileFrames(block string) (all []string) {
	begin := octets(rawHeaders, flagEndHeaders, 1, block) + octets(rawHeaders, flagEndHeaders|flagEnd, 3, block)
	for _, s := range []string{
		// Lengths and streams of each type.
		octets(rawData, 0, 0, "x"), octets(rawData, 0, 2, "x"), octets(rawData, 0, 9, "x"), octets(rawData, 0, 3, "x"), octets(rawData, flagPadded, 1, "\x05abc"), octets(rawData, flagPadded, 1, ""),
		octets(rawHeaders, flagEndHeaders, 0, block), octets(rawHeaders, flagEndHeaders, 2, block), octets(rawHeaders, flagEndHeaders|flagPadded, 5, "\xff"+block),
		octets(rawHeaders, flagEndHeaders|flagPriority, 5, "\x00\x00"), octets(rawHeaders, flagEndHeaders|flagPriority, 5, "\x00\x00\x00\x05\x10"+block),
		octets(rawPriority, 0, 1, "\x00\x00\x00\x00"), octets(rawPriority, 0, 0, "\x00\x00\x00\x00\x00"), octets(rawPriority, 0, 1, "\x80\x00\x00\x01\x00"),
		octets(rawReset, 0, 0, "\x00\x00\x00\x08"), octets(rawReset, 0, 1, "\x00\x00\x08"), octets(rawReset, 0, 9, "\x00\x00\x00\x08"), octets(rawReset, 0, 1, "\x00\x00\x00\x08") + octets(rawData, flagEnd, 1, "late"),
		octets(rawSettings, 0, 1, ""), octets(rawSettings, 0, 0, "\x00\x01\x00"), octets(rawSettings, flagAck, 0, "\x00\x03\x00\x00\x00\x01"),
		octets(rawSettings, 0, 0, "\x00\x02\x00\x00\x00\x02"), octets(rawSettings, 0, 0, "\x00\x04\x80\x00\x00\x00"), octets(rawSettings, 0, 0, "\x00\x05\x00\x00\x00\x00"),
		octets(rawSettings, 0, 0, "\x00\x08\x00\x00\x00\x02"), octets(rawSettings, 0, 0, "\x00\x09\x00\x00\x00\x02"), octets(rawSettings, 0, 0, "\x00\x01\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x06\x00\x00\x00\x01"),
		octets(rawPush, flagEndHeaders, 1, "\x00\x00\x00\x02"+block), octets(rawPing, 0, 1, "12345678"), octets(rawPing, 0, 0, "1234"), octets(rawPing, flagAck, 0, "12345678"),
		octets(rawGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00"), octets(rawGoAway, 0, 0, "\x00\x00"), octets(rawGoAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00") + octets(rawGoAway, 0, 0, "\x00\x00\x00\x03\x00\x00\x00\x00"),
		octets(rawWindow, 0, 0, "\x00\x00\x00"), octets(rawWindow, 0, 0, "\x00\x00\x00\x00"), octets(rawWindow, 0, 1, "\x00\x00\x00\x00"), octets(rawWindow, 0, 0, "\x7f\xff\xff\xff"),
		octets(rawWindow, 0, 1, "\x7f\xff\xff\xff"), octets(rawWindow, 0, 9, "\x00\x00\x00\x01"), octets(rawWindow, 0, 1, "\x00\x00\xff\xff") + octets(rawSettings, 0, 0, "\x00\x04\x7f\xff\xff\xff"),
		octets(0x10, 0, 0, "\x00\x00\x00\x01u=0"), octets(0x10, 0, 1, "\x00\x00\x00\x01u=0"), octets(0x10, 0, 0, "\x00"), octets(0x10, 0, 0, "\x00\x00\x00\x00u=9, i=?3, \x00"), octets(0xfa, 0xff, 77, "anything"),
		"\x00\x40\x01\x00\x00\x00\x00\x00\x01" + strings.Repeat("x", 0x4001), "\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		// Header blocks in pieces.
		octets(rawHeaders, 0, 5, block[:1]) + octets(rawContinuation, flagEndHeaders, 7, block[1:]), octets(rawHeaders, 0, 5, block) + octets(rawPing, 0, 0, "12345678"),
		octets(rawHeaders, 0, 5, block) + octets(rawData, 0, 1, "x"), octets(rawContinuation, flagEndHeaders, 1, block), octets(rawHeaders, 0, 5, block) + strings.Repeat(octets(rawContinuation, 0, 5, ""), 40),
		octets(rawHeaders, flagEnd, 1, "\x00\x01a\x01b") + octets(rawContinuation, flagEndHeaders, 1, "\x00\x01c\x01d"), octets(rawHeaders, flagEndHeaders, 1, "\x00\x01a\x01b"),
		// HPACK: no such index, a table too large or resized too late, integers that overflow, strings that are cut off or no Huffman code.
		octets(rawHeaders, flagEndHeaders, 5, "\x80"), octets(rawHeaders, flagEndHeaders, 5, "\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), octets(rawHeaders, flagEndHeaders, 5, "\xbe"),
		octets(rawHeaders, flagEndHeaders, 5, "\x3f\xe1\xff\x03"+block), octets(rawHeaders, flagEndHeaders, 5, block+"\x20"), octets(rawHeaders, flagEndHeaders, 5, "\x20\x3f\xe1\x1f"+block),
		octets(rawHeaders, flagEndHeaders, 5, "\x00\x7f\xff\xff\xff\xff\x0f"), octets(rawHeaders, flagEndHeaders, 5, "\x00\x05ab"), octets(rawHeaders, flagEndHeaders, 5, "\x00\x81\xff\x01b"), octets(rawHeaders, flagEndHeaders, 5, "\x00\x84\xff\xff\xff\xff\x01b"),
		octets(rawHeaders, flagEndHeaders, 5, "\x40\x7f\x10"+strings.Repeat("n", 143)+"\x7f\x91\x1e"+strings.Repeat("v", 4000)+strings.Repeat("\xbe", 200)),
		octets(rawHeaders, flagEndHeaders|flagEnd, 5, block+"\x40\x01x\x01y") + octets(rawHeaders, flagEndHeaders|flagEnd, 7, block+"\xbe\x10\x01p\x01q"),
		// Sections that are well encoded and malformed.
		octets(rawHeaders, flagEndHeaders, 5, block+block), octets(rawHeaders, flagEndHeaders, 5, "\x00\x01x\x01y"+block), octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x01X\x01y"), octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x00\x01y"),
		octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x0aconnection\x05close"), octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x02te\x04gzip"), octets(rawHeaders, flagEndHeaders, 5, block+"\x0f\x0d\x01x"),
		octets(rawHeaders, flagEndHeaders, 5, block+"\x0f\x0d\x014\x0f\x0d\x014"), octets(rawHeaders, flagEndHeaders|flagEnd, 5, block+"\x0f\x0d\x014"), octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x01x\x02\r\n"),
		octets(rawHeaders, flagEndHeaders, 5, block+"\x0f\x0d\x014") + octets(rawData, flagEnd, 5, "12345"), octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x04:new\x01y"),
		octets(rawHeaders, flagEndHeaders, 5, "\x48\x03101"), octets(rawHeaders, flagEndHeaders, 5, "\x48\x03099"), octets(rawHeaders, flagEndHeaders|flagEnd, 5, "\x48\x03103"), octets(rawHeaders, flagEndHeaders, 5, "\x48\x03103") + octets(rawData, 0, 5, "x"),
		octets(rawHeaders, flagEndHeaders, 5, "\x02\x07CONNECT\x41\x04h:80") + octets(rawData, flagEnd, 5, "x"), octets(rawHeaders, flagEndHeaders, 5, "\x02\x07CONNECT\x86\x84\x41\x01h\x00\x09:protocol\x09websocket"),
		octets(rawHeaders, flagEndHeaders, 5, block+"\x00\x08priority\x06u=7, i") + octets(rawData, 0, 5, "") + octets(rawData, 0, 5, "") + octets(rawData, flagEnd, 5, ""),
	} {
		all = append(all, s, begin+s)
	}
	return all
}

func addHostile(f *testing.F, block string) {
	for _, s := range hostileFrames(block) {
		f.Add([]byte(s))
	}
}
