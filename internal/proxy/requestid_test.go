package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// uuid is a random UUID (RFC 9562 section 5.4).
var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// TestRequestIDs: each request reaches its backend with one X-Request-Id, which the access log shows. A client's own is kept only where that is asked
// for, and only one that is plain.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	const ours = ""
	for _, tc := range []struct {
		name, lines        string
		generate, preserve string // what the backend sees
	}{
		{"none", "", ours, ours},
		{"one", "X-Request-Id: abc-1\r\n", ours, "abc-1"},
		{"another spelling", "x_request_id: abc-1\r\n", ours, "abc-1"},
		{"empty", "X-Request-Id:\r\n", ours, ours},
		{"two", "X-Request-Id: a\r\nX-Request-Id: b\r\n", ours, ours},
		{"two in one", "X-Request-Id: a,b\r\n", ours, ours},
		{"two spellings", "X-Request-Id: a\r\nX_Request-Id: a\r\n", ours, ours},
		{"two spellings, one with a dot", "X.Request.Id: a\r\nX-Request-Id: a\r\n", ours, ours},
		{"with a space", "X-Request-Id: a b\r\n", ours, ours},
		{"not ASCII", "X-Request-Id: \xc3\xa4\r\n", ours, ours},
		{"longest", "X-Request-Id: " + strings.Repeat("x", 128) + "\r\n", ours, strings.Repeat("x", 128)},
		{"too long", "X-Request-Id: " + strings.Repeat("x", 129) + "\r\n", ours, ours},
	} {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, keep), func(t *testing.T) {
				t.Parallel()
				saw := make(chan http.Header, 2)
				g := startGatewayWith(t, Options{KeepRequestIDs: keep})
				g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) { saw <- r.Header }), nil)
				c := g.dial()
				r := bufio.NewReader(c)
				want := tc.generate
				if keep {
					want = tc.preserve
				}
				var ids []string
				for range 2 {
					io.WriteString(c, "GET / HTTP/1.1\r\nHost: h.example\r\n"+tc.lines+"\r\n")
					if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusOK {
						t.Fatal(resp, err)
					}
					var got []string
					for name, values := range <-saw {
						if cgiName(strings.ToLower(name)) == "x-request-id" {
							got = append(got, values...)
						}
					}
					if len(got) != 1 || want != ours && got[0] != want || want == ours && !uuid.MatchString(got[0]) {
						t.Fatalf("the backend sees %q, want %q", got, want)
					}
					ids = append(ids, got[0])
				}
				if want == ours && ids[0] == ids[1] {
					t.Error("two requests have the same id")
				}
				for _, id := range slices.Compact(ids) {
					testkit.Eventually(t, "the access log shows the id", func() bool { return strings.Contains(g.log.String(), `"request_id":"`+id+`"`) })
				}
			})
		}
	}
}

// TestRequestIDInTrailer: no id of a client's passes behind the body either, where servers may merge it with the header section.
func TestRequestIDInTrailer(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			t.Parallel()
			saw := make(chan http.Header, 1)
			g := startGatewayWith(t, Options{KeepRequestIDs: keep})
			g.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				saw <- r.Trailer
			}), nil)
			c := g.dial()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: h.example\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"2\r\nhi\r\n0\r\nX-Request-Id: a\r\nX_Request_Id: b\r\nX.Request.Id: c\r\nX-Sum: 1\r\n\r\n")
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			if got := <-saw; len(got) != 1 || got.Get("X-Sum") != "1" {
				t.Errorf("the backend sees the trailer %v, want X-Sum alone", got)
			}
		})
	}
}
