package http2

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

// firstWindow is the window that the peer's part of a stream begins with. A peer gets more when its body is read.
func firstWindow(o *Options, toServer bool) int {
	if toServer {
		return min(o.StreamWindow, backendWindow)
	}
	return min(o.StreamWindow, frame.DefaultWindow)
}

// appendPreface appends our SETTINGS and what the connection's window has above the default.
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

// peerSettings collects what one SETTINGS frame says, to be applied at once.
type peerSettings struct {
	window  int    // that each of our streams begins with
	streams uint32 // that we may have open
	headers uint32 // how large header sections may be that we send
}

// set takes in one setting (RFC 9113 section 6.5.2). Our heads use no dynamic table, our frames
// fit the least size that peers must accept, and we push nothing, so little concerns us.
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
