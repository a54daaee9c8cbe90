// Package frame implements the format of HTTP/2 frames (RFC 9113 sections 4 and 6): their header, their names and
// numbers, and the writing of those with a payload format. It exists so that connections only deal with the meaning of
// frames.
//
// It is pure and imports the standard library's encoding/binary, never a connection or anything of the proxy.
package frame

import "encoding/binary"

// Type is a frame type.
type Type uint8

// Frame types (RFC 9113 section 6, RFC 9218 section 7.1).
const (
	Data           Type = 0x0
	Headers        Type = 0x1
	Priority       Type = 0x2
	Reset          Type = 0x3
	Settings       Type = 0x4
	PushPromise    Type = 0x5
	Ping           Type = 0x6
	GoAway         Type = 0x7
	WindowUpdate   Type = 0x8
	Continuation   Type = 0x9
	PriorityUpdate Type = 0x10
)

// Flags (RFC 9113 section 6).
const (
	FlagEndStream  = 0x1
	FlagAck        = 0x1
	FlagEndHeaders = 0x4
	FlagPadded     = 0x8
	FlagPriority   = 0x20
)

// Setting is the number of a setting.
type Setting uint16

// Settings (RFC 9113 section 6.5.2, RFC 8441, RFC 9218).
const (
	SettingHeaderTableSize Setting = 0x1
	SettingEnablePush      Setting = 0x2
	SettingMaxStreams      Setting = 0x3
	SettingInitialWindow   Setting = 0x4
	SettingMaxFrame        Setting = 0x5
	SettingMaxHeaderList   Setting = 0x6
	SettingExtendedConnect Setting = 0x8
	SettingNoOldPriorities Setting = 0x9
)

// Bounds of the protocol, in bytes unless stated otherwise.
const (
	HeaderLen     = 9
	SettingLen    = 6
	MaxPayload    = 16 << 10 // without SETTINGS_MAX_FRAME_SIZE, which is never sent
	MaxWindow     = 1<<31 - 1
	DefaultWindow = 65535
	MaxStreamID   = 1<<31 - 1 // a number, not bytes
)

// Header is a frame header.
type Header struct {
	Length int // of the payload
	Type   Type
	Flags  uint8
	Stream uint32
}

// Has reports whether the flag is set.
func (h *Header) Has(flag uint8) bool { return h.Flags&flag != 0 }

// ParseHeader parses the header at the beginning of b, which must have at least HeaderLen bytes.
func ParseHeader(b []byte) Header {
	return Header{
		Length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		Type:   Type(b[3]),
		Flags:  b[4],
		Stream: binary.BigEndian.Uint32(b[5:]) & MaxStreamID,
	}
}

// AppendHeader appends the header of a frame with a payload of length bytes.
func AppendHeader(dst []byte, length int, typ Type, flags uint8, stream uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), byte(typ), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// AppendReset appends RST_STREAM.
func AppendReset[Code ~uint32](dst []byte, stream uint32, code Code) []byte {
	dst = AppendHeader(dst, 4, Reset, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

// AppendWindowUpdate appends WINDOW_UPDATE; stream 0 means the connection.
func AppendWindowUpdate(dst []byte, stream uint32, n int) []byte {
	dst = AppendHeader(dst, 4, WindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// AppendPing appends PING, or its answer with FlagAck.
func AppendPing(dst []byte, flags uint8, data uint64) []byte {
	dst = AppendHeader(dst, 8, Ping, flags, 0)
	return binary.BigEndian.AppendUint64(dst, data)
}

// AppendGoAway appends GOAWAY. why is for people.
func AppendGoAway[Code ~uint32](dst []byte, last uint32, code Code, why string) []byte {
	dst = AppendHeader(dst, 8+len(why), GoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, why...)
}

// AppendSetting appends an entry of SETTINGS.
func AppendSetting(dst []byte, id Setting, value int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(id))
	return binary.BigEndian.AppendUint32(dst, uint32(value))
}

// SetStream writes the stream number into all frames in b.
func SetStream(b []byte, stream uint32) {
	for len(b) >= HeaderLen {
		binary.BigEndian.PutUint32(b[5:], stream)
		b = b[HeaderLen+ParseHeader(b).Length:]
	}
}
