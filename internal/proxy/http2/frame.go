package http2

import "encoding/binary"

type frameType uint8

// Frame types (RFC 9113 section 6, RFC 9218 section 7.1).
const (
	frameData           frameType = 0x0
	frameHeaders        frameType = 0x1
	framePriority       frameType = 0x2
	frameReset          frameType = 0x3
	frameSettings       frameType = 0x4
	framePushPromise    frameType = 0x5
	framePing           frameType = 0x6
	frameGoAway         frameType = 0x7
	frameWindowUpdate   frameType = 0x8
	frameContinuation   frameType = 0x9
	framePriorityUpdate frameType = 0x10
)

const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

type setting uint16

const (
	settingHeaderTableSize   setting = 0x1
	settingEnablePush        setting = 0x2
	settingMaxStreams        setting = 0x3
	settingInitialWindow     setting = 0x4
	settingMaxFrame          setting = 0x5
	settingMaxHeaderList     setting = 0x6
	settingExtendedConnect   setting = 0x8
	settingNoOldPriorities   setting = 0x9
	settingLen                       = 6
	frameHeaderLen                   = 9
	maxFrame                         = 16 << 10 // of payload, both ways
	maxWindow                        = 1<<31 - 1
	defaultWindow                    = 65535
	maxStreamID                      = 1<<31 - 1
	maxPriorityUpdate                = 4 + 128 // what is looked at of a PRIORITY_UPDATE
	pingOfDrain, pingOfWatch         = 1, 2    // what our PINGs carry
)

type frameHeader struct {
	length int
	typ    frameType
	flags  uint8
	stream uint32
}

func (h *frameHeader) has(flag uint8) bool { return h.flags&flag != 0 }

func parseFrameHeader(b []byte) frameHeader {
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		typ:    frameType(b[3]),
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & maxStreamID,
	}
}

func appendFrameHeader(dst []byte, length int, typ frameType, flags uint8, stream uint32) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), byte(typ), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendReset(dst []byte, stream uint32, code Code) []byte {
	dst = appendFrameHeader(dst, 4, frameReset, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

func appendWindowUpdate(dst []byte, stream uint32, n int) []byte {
	dst = appendFrameHeader(dst, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

func appendPing(dst []byte, flags uint8, data uint64) []byte {
	dst = appendFrameHeader(dst, 8, framePing, flags, 0)
	return binary.BigEndian.AppendUint64(dst, data)
}

func appendGoAway(dst []byte, last uint32, code Code, why string) []byte {
	dst = appendFrameHeader(dst, 8+len(why), frameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, why...)
}

func appendSetting(dst []byte, id setting, value int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(id))
	return binary.BigEndian.AppendUint32(dst, uint32(value))
}

// appendGreeting appends our SETTINGS and what the connection's window has above the default.
func appendGreeting(dst []byte, o *Options) []byte {
	start := len(dst)
	dst = appendFrameHeader(dst, 0, frameSettings, 0, 0)
	dst = appendSetting(dst, settingMaxStreams, o.MaxStreams)
	dst = appendSetting(dst, settingInitialWindow, o.StreamWindow)
	dst = appendSetting(dst, settingMaxHeaderList, o.MaxHeaderBytes)
	dst = appendSetting(dst, settingNoOldPriorities, 1)
	if o.ExtendedConnect {
		dst = appendSetting(dst, settingExtendedConnect, 1)
	}
	dst[start+2] = byte(len(dst) - start - frameHeaderLen)
	if n := o.ConnWindow - defaultWindow; n > 0 {
		dst = appendWindowUpdate(dst, 0, n)
	}
	return dst
}
