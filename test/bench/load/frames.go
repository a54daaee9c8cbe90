//go:build linux

package load

import "encoding/binary"

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// What is needed of RFC 9113 sections 6 and 6.5.2.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize     = 0x1
	settingEnablePush    = 0x2
	settingMaxStreams    = 0x3
	settingInitialWindow = 0x4

	frameHeaderLen = 9
	settingLen     = 6
	maxFrame       = 16 << 10
	defaultWindow  = 65535
	// bigWindow is what we let come in, for a stream and for the connection: nobody shall wait for it.
	bigWindow = 1 << 30
)

func appendFrameHeader(out []byte, size int, kind, flags byte, stream uint32) []byte {
	out = append(out, byte(size>>16), byte(size>>8), byte(size), kind, flags)
	return binary.BigEndian.AppendUint32(out, stream)
}

func appendFrame(out []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	return append(appendFrameHeader(out, len(payload), kind, flags, stream), payload...)
}

func appendWindowUpdate(out []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(out, 4, frameWindowUpdate, 0, 0), uint32(n))
}

// appendGreeting appends what a client begins with: no pushes, and windows that nobody waits for.
func appendGreeting(out []byte) []byte {
	out = append(out, preface...)
	out = appendFrameHeader(out, 2*settingLen, frameSettings, 0, 0)
	for _, s := range [...][2]uint32{{settingEnablePush, 0}, {settingInitialWindow, bigWindow}} {
		out = binary.BigEndian.AppendUint16(out, uint16(s[0]))
		out = binary.BigEndian.AppendUint32(out, s[1])
	}
	return appendWindowUpdate(out, bigWindow-defaultWindow)
}
