package http2

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// firstWindow returns the initial window for what the peer sends on a stream. It grows when the body is read.
func firstWindow(o *Options, toServer bool) int {
	if toServer {
		return min(o.StreamWindow, backendWindow)
	}
	return min(o.StreamWindow, frame.DefaultWindow)
}

// appendPreface appends the SETTINGS of this side, and the part of the connection's window above the default.
func appendPreface(dst []byte, o *Options, toServer bool) []byte {
	start := len(dst)
	dst = frame.AppendHeader(dst, 0, frame.Settings, 0, 0)
	if toServer {
		dst = frame.AppendSetting(dst, frame.SettingEnablePush, 0)
	} else {
		dst = frame.AppendSetting(dst, frame.SettingMaxStreams, o.MaxStreams)
	}
	dst = frame.AppendSetting(dst, frame.SettingInitialWindow, firstWindow(o, toServer))
	dst = frame.AppendSetting(dst, frame.SettingMaxHeaderList, o.MaxHeaderBytes)
	dst = frame.AppendSetting(dst, frame.SettingNoOldPriorities, 1)
	if o.ExtendedConnect {
		dst = frame.AppendSetting(dst, frame.SettingExtendedConnect, 1)
	}
	dst[start+2] = byte(len(dst) - start - frame.HeaderLen)
	if n := o.ConnWindow - frame.DefaultWindow; n > 0 {
		dst = frame.AppendWindowUpdate(dst, 0, n)
	}
	return dst
}

// peerSettings collects the values of one SETTINGS frame, which are applied together.
type peerSettings struct {
	window  int    // initial window for what this side sends on a stream
	streams uint32 // number of streams that this side may open
	headers uint32 // largest header section that this side may send, in bytes
}

// set processes one setting (RFC 9113 section 6.5.2). Header blocks of this side use no dynamic table, its frames fit
// the least size that peers must accept, and it pushes nothing, so most settings are irrelevant.
func (p *peerSettings) set(id frame.Setting, value uint32, ofServer bool) error {
	switch {
	case id == frame.SettingEnablePush && (value > 1 || ofServer && value > 0),
		id == frame.SettingExtendedConnect && value > 1,
		id == frame.SettingMaxFrame && (value < frame.MaxPayload || value > 1<<24-1):
		return connError(ProtocolError, "setting out of bounds")
	case id == frame.SettingInitialWindow && value > frame.MaxWindow:
		return connError(FlowControlError, "initial window too large")
	case id == frame.SettingInitialWindow:
		p.window = int(value)
	case id == frame.SettingMaxStreams:
		p.streams = value
	case id == frame.SettingMaxHeaderList:
		p.headers = value
	}
	return nil
}
