package exchange

import (
	"bytes"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/accesslog"
)

// TestRecordedIsSmall: what a tunnel keeps for the access log is what its line shows, not what requests before it had.
func TestRecordedIsSmall(t *testing.T) {
	x := New()
	x.Client = &Client{Engine: &Engine{Logging: true, LoggedRequest: []string{"a", "b", "empty"}, LoggedResponse: []string{"c", "d"}}}
	request := func(value string) {
		x.Request.Request.Reset()
		x.resp.Header.Forget()
		x.Header.Add([]byte("A"), []byte(value))
		x.Header.Add([]byte("B"), []byte(value))
		x.Header.Add([]byte("Empty"), nil)
		x.resp.Header.Add([]byte("C"), []byte(value))
		x.noteRequestHeaders()
		x.noteResponseHeaders()
	}
	request(strings.Repeat("x", 2*accesslog.MaxHeader))
	request("short")
	long := bytes.Repeat([]byte("y"), 64<<10)
	r := &x.rec
	r.Method, r.Host, r.Target, r.UserAgent, r.RequestID = long, long, long, long, nil
	x.keepRecorded()
	kept, most := 0, accesslog.MaxMethod+accesslog.MaxHost+accesslog.MaxTarget+accesslog.MaxUserAgent
	for _, b := range [][]byte{r.Method, r.Host, r.Target, r.UserAgent, r.RequestID} {
		kept += cap(b)
	}
	if kept > 2*most || len(r.Target) <= accesslog.MaxTarget || r.RequestID != nil {
		t.Errorf("%d bytes are kept, %d of the target", kept, len(r.Target))
	}
	headers := 0
	for _, list := range [][][]byte{*r.Headers, x.rare.logged.memory} {
		for _, b := range list {
			headers += cap(b)
		}
	}
	if headers > 100 {
		t.Errorf("%d bytes are kept of headers", headers)
	}
	for i, want := range []string{"short", "short", "", "short"} {
		if got := (*r.Headers)[i]; string(got) != want || got == nil {
			t.Errorf("header %d is %q, want %q", i, got, want)
		}
	}
	if got := (*r.Headers)[4]; got != nil {
		t.Errorf("a header that is not there is %q", got)
	}
	request("next")
	if got := (*r.Headers)[0]; string(got) != "next" {
		t.Errorf("then a header is %q", got)
	}
}
