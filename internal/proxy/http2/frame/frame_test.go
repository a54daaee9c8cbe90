package frame

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// TestFrames has what is appended read by another implementation.
func TestFrames(t *testing.T) {
	b := AppendReset(nil, 5, uint32(8))
	b = AppendWindowUpdate(b, 0, MaxWindow)
	b = AppendWindowUpdate(b, 7, 1)
	b = AppendPing(b, FlagAck, 0x0102030405060708)
	b = AppendGoAway(b, MaxStreamID, uint32(11), "why")
	start := len(b)
	b = AppendHeader(b, 0, Settings, 0, 0)
	b = AppendSetting(b, SettingInitialWindow, 1<<20)
	b = AppendSetting(b, SettingExtendedConnect, 1)
	b[start+2] = byte(len(b) - start - HeaderLen)
	r := http2.NewFramer(nil, bytes.NewReader(b))
	for i, check := range []func(http2.Frame) bool{
		func(f http2.Frame) bool {
			rst, ok := f.(*http2.RSTStreamFrame)
			return ok && rst.StreamID == 5 && rst.ErrCode == 8
		},
		func(f http2.Frame) bool {
			w, ok := f.(*http2.WindowUpdateFrame)
			return ok && w.StreamID == 0 && w.Increment == MaxWindow
		},
		func(f http2.Frame) bool {
			w, ok := f.(*http2.WindowUpdateFrame)
			return ok && w.StreamID == 7 && w.Increment == 1
		},
		func(f http2.Frame) bool {
			p, ok := f.(*http2.PingFrame)
			return ok && p.IsAck() && p.Data == [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
		},
		func(f http2.Frame) bool {
			g, ok := f.(*http2.GoAwayFrame)
			return ok && g.LastStreamID == MaxStreamID && g.ErrCode == 11 && string(g.DebugData()) == "why"
		},
		func(f http2.Frame) bool {
			s, ok := f.(*http2.SettingsFrame)
			if !ok || s.NumSettings() != 2 {
				return false
			}
			window, _ := s.Value(http2.SettingInitialWindowSize)
			connect, _ := s.Value(http2.SettingEnableConnectProtocol)
			return window == 1<<20 && connect == 1
		},
	} {
		f, err := r.ReadFrame()
		if err != nil || !check(f) {
			t.Fatalf("frame %d was read as %v, %v", i, f, err)
		}
	}
}

// TestParseHeader reads the largest value of every part, and ignores the reserved bit.
func TestParseHeader(t *testing.T) {
	want := Header{Length: 1<<24 - 1, Type: PriorityUpdate, Flags: 0xff, Stream: MaxStreamID}
	b := AppendHeader(nil, want.Length, want.Type, want.Flags, want.Stream)
	b[5] |= 0x80
	if got := ParseHeader(b); got != want || !got.Has(FlagPadded) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if h := (Header{Flags: FlagEndStream}); h.Has(FlagEndHeaders) {
		t.Error("a flag that is not set is reported")
	}
}

// TestSetStream renumbers each of several frames and nothing of their payloads.
func TestSetStream(t *testing.T) {
	b := AppendHeader(nil, 3, Headers, 0, 1)
	b = append(b, "abc"...)
	b = AppendHeader(b, 0, Continuation, FlagEndHeaders, 1)
	SetStream(b, 9)
	want := AppendHeader(nil, 3, Headers, 0, 9)
	want = append(want, "abc"...)
	want = AppendHeader(want, 0, Continuation, FlagEndHeaders, 9)
	if !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
}
