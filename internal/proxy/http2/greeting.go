package http2

import "github.com/moongate-dev/moongate/internal/proxy/http2/frame"

// appendGreeting appends our SETTINGS and what the connection's window has above the default.
func appendGreeting(dst []byte, o *Options, toServer bool) []byte {
	start := len(dst)
	dst = frame.AppendHeader(dst, 0, frame.Settings, 0, 0)
	if toServer {
		dst = frame.AppendSetting(dst, frame.SettingEnablePush, 0)
	} else {
		dst = frame.AppendSetting(dst, frame.SettingMaxStreams, o.MaxStreams)
	}
	dst = frame.AppendSetting(dst, frame.SettingInitialWindow, o.StreamWindow)
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

// What our PINGs carry.
const pingOfDrain, pingOfWatch = 1, 2
