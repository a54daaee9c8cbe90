// Package frame has what the benchmark's load generator and origin share of HTTP/2: the numbers of
// RFC 9113 sections 6 and 6.5.2 that they need, and the framing. It exists because both speak HTTP/2 from an
// event loop, for which no library is made. It must never import anything but the standard library.
package frame

import (
	"encoding/binary"
	"fmt"
)

// Preface is what a client's connection begins with.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types of frames.
const (
	Data         = 0x0
	Headers      = 0x1
	Reset        = 0x3
	Settings     = 0x4
	PushPromise  = 0x5
	Ping         = 0x6
	GoAway       = 0x7
	WindowUpdate = 0x8
	Continuation = 0x9
)

// Flags of frames.
const (
	EndStream  = 0x1
	Ack        = 0x1
	EndHeaders = 0x4
	Padded     = 0x8
	Priority   = 0x20
)

// Settings, and the size of one on the wire.
const (
	SettingTableSize     = 0x1
	SettingEnablePush    = 0x2
	SettingMaxStreams    = 0x3
	SettingInitialWindow = 0x4

	SettingLen = 6
)

// Sizes in bytes.
const (
	HeaderLen     = 9
	MaxSize       = 16 << 10 // of a frame's payload, the protocol's default, of which neither side says anything else
	TableSize     = 4 << 10  // of HPACK's dynamic table, likewise
	DefaultWindow = 65535
	// BigWindow is what is let come in, for a stream and for the connection: nobody shall wait for it.
	BigWindow = 1 << 30
)

// Frame is one frame of a buffer.
type Frame struct {
	Type, Flags byte
	Stream      uint32
	Payload     []byte
}

// Has reports whether a flag is set.
func (f *Frame) Has(flag byte) bool { return f.Flags&flag != 0 }

// Next takes the first frame off b; ok is false where it is not there as a whole yet.
func Next(b []byte) (f Frame, rest []byte, ok bool, err error) {
	if len(b) < HeaderLen {
		return f, b, false, nil
	}
	size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	if size > MaxSize {
		return f, b, false, fmt.Errorf("frame of %d bytes", size)
	}
	end := HeaderLen + size
	if len(b) < end {
		return f, b, false, nil
	}
	return Frame{b[3], b[4], binary.BigEndian.Uint32(b[5:]) & (1<<31 - 1), b[HeaderLen:end]}, b[end:], true, nil
}

// AppendHeader appends the header of a frame with a payload of size bytes.
func AppendHeader(out []byte, size int, kind, flags byte, stream uint32) []byte {
	out = append(out, byte(size>>16), byte(size>>8), byte(size), kind, flags)
	return binary.BigEndian.AppendUint32(out, stream)
}

// Append appends a frame.
func Append(out []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	return append(AppendHeader(out, len(payload), kind, flags, stream), payload...)
}

// AppendWindowUpdate gives n bytes back to the peer, of a stream or, with 0, of the connection.
func AppendWindowUpdate(out []byte, stream uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(out, 4, WindowUpdate, 0, stream), uint32(n))
}

// AppendSettings appends pairs of a setting and its value.
func AppendSettings(out []byte, pairs ...[2]uint32) []byte {
	out = AppendHeader(out, len(pairs)*SettingLen, Settings, 0, 0)
	for _, s := range pairs {
		out = binary.BigEndian.AppendUint16(out, uint16(s[0]))
		out = binary.BigEndian.AppendUint32(out, s[1])
	}
	return out
}

// EachSetting calls f for every setting of a SETTINGS frame's payload.
func EachSetting(payload []byte, f func(id uint16, value int)) {
	for ; len(payload) >= SettingLen; payload = payload[SettingLen:] {
		f(binary.BigEndian.Uint16(payload), int(binary.BigEndian.Uint32(payload[2:])))
	}
}
