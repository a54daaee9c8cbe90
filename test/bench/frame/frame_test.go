package frame

import (
	"bytes"
	"testing"
)

// Frames come out of a buffer as they were put into it, and only as a whole.
func TestNext(t *testing.T) {
	b := AppendWindowUpdate(Append(nil, Data, EndStream, 5, []byte("abc")), 7, 1<<20)
	for n := range HeaderLen + 3 {
		if _, rest, ok, err := Next(b[:n]); ok || err != nil || len(rest) != n {
			t.Fatalf("%d bytes: ok %v, error %v, %d bytes left", n, ok, err, len(rest))
		}
	}
	f, rest, ok, err := Next(b)
	if err != nil || !ok || f.Type != Data || !f.Has(EndStream) || f.Has(Padded) || f.Stream != 5 || string(f.Payload) != "abc" {
		t.Fatalf("first frame %+v, %v, %v", f, ok, err)
	}
	f, rest, ok, err = Next(rest)
	if err != nil || !ok || f.Type != WindowUpdate || f.Stream != 7 || !bytes.Equal(f.Payload, []byte{0, 16, 0, 0}) || len(rest) != 0 {
		t.Fatalf("second frame %+v, %v, %v", f, ok, err)
	}
	if _, _, _, err := Next(AppendHeader(nil, MaxSize+1, Data, 0, 1)); err == nil {
		t.Error("a frame that is too large has no error")
	}
}

func TestSettings(t *testing.T) {
	f, _, ok, err := Next(AppendSettings(nil, [2]uint32{SettingEnablePush, 0}, [2]uint32{SettingInitialWindow, BigWindow}))
	if err != nil || !ok || f.Type != Settings {
		t.Fatalf("frame %+v, %v, %v", f, ok, err)
	}
	got := map[uint16]int{}
	EachSetting(f.Payload, func(id uint16, value int) { got[id] = value })
	if len(got) != 2 || got[SettingEnablePush] != 0 || got[SettingInitialWindow] != BigWindow {
		t.Errorf("settings %v", got)
	}
}
