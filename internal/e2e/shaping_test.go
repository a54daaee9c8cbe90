package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// asExample checks that the manifest of a page is that which stands among the examples, behind a comment.
func asExample(t *testing.T, name string) {
	t.Helper()
	example, err := os.ReadFile("../../examples/backendtrafficpolicy/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	comment, manifest, _ := strings.Cut(string(example), "\n")
	if !strings.HasPrefix(comment, "# ") || blocksOf(t, "docs/tasks/"+name+".md")[0].content != manifest {
		t.Errorf("the page %s has another manifest than its example", name)
	}
}

// TestTaskFaultInjection does what the page says: an aborted request does not reach the backend, and a delayed one comes late.
func TestTaskFaultInjection(t *testing.T) {
	t.Parallel()
	asExample(t, "fault-injection")
	var asked atomic.Int32
	begun := time.Now()
	runTask(t, "fault-injection", map[int]*backend{3000: newBackend(t, "app", func(_ http.ResponseWriter, r *http.Request) bool {
		if asked.Add(1); r.URL.Path != "/slow" {
			t.Errorf("the backend is asked for %s", r.URL.Path)
		}
		return false
	})})
	if took := time.Since(begun); asked.Load() != 1 || took < 2*time.Second {
		t.Errorf("the backend was asked %d times within %v", asked.Load(), took)
	}
}

// startExample serves examples/backendtrafficpolicy/<name>.yaml, on another port and with the backend in the place of its own, and returns what URLs of it begin with.
func startExample(t *testing.T, name string, b *backend) (url string) {
	t.Helper()
	text, err := os.ReadFile("../../examples/backendtrafficpolicy/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	start(t, map[string]string{name + ".yaml": exampleAt(string(text), port, b)})
	return local(port, "")
}

// exampleAt is a manifest on another port and with the backend in the place of its own.
func exampleAt(manifest string, port int, b *backend) string {
	return withPorts(manifest, map[int]int{8080: port, 3000: b.port})
}

// TestTaskRequestBuffer: the backend is told the length of a body that came in chunks, and hears of none that is too long.
func TestTaskRequestBuffer(t *testing.T) {
	t.Parallel()
	asExample(t, "request-buffer")
	var length atomic.Int64
	b := newBackend(t, "app", func(_ http.ResponseWriter, r *http.Request) bool {
		length.Store(r.ContentLength)
		return false
	})
	runTask(t, "request-buffer", map[int]*backend{3000: b})
	url := startExample(t, "request-buffer", b)
	for size, want := range map[int]int{1000: http.StatusOK, 1025: http.StatusRequestEntityTooLarge} {
		length.Store(0)
		resp, err := http.Post(url, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("b", size)))) // in chunks
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if n := length.Load(); resp.StatusCode != want || n != 0 && n != int64(size) || (n == 0) != (want != http.StatusOK) {
			t.Errorf("%d bytes: got %d, and the backend is told of %d", size, resp.StatusCode, n)
		}
	}
}

// TestTaskAdmissionControl: while everything fails requests are turned away, and the backend is asked less.
func TestTaskAdmissionControl(t *testing.T) {
	t.Parallel()
	asExample(t, "admission-control")
	var asked atomic.Int32
	b := newBackend(t, "app", func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	runTask(t, "admission-control", map[int]*backend{3000: b})
	url := startExample(t, "admission-control", b)
	asked.Store(0)
	rejected := 0
	const n = 2000
	for range n {
		if (ask{method: "GET", url: url}).do(t).StatusCode == http.StatusServiceUnavailable {
			rejected++
		}
	}
	// After k requests that have failed the next is let through with the probability 1/(k+1): about 63 of 2,000 are, the square root of 4,000.
	if let := int(asked.Load()); let+rejected != n || let < 30 || let > 120 {
		t.Errorf("%d requests were let through, and %d rejected", let, rejected)
	}
}

// TestTaskBandwidthLimit: a response of 12 KiB takes two seconds.
func TestTaskBandwidthLimit(t *testing.T) {
	t.Parallel()
	asExample(t, "bandwidth-limit")
	begun := time.Now()
	runTask(t, "bandwidth-limit", map[int]*backend{3000: newBackend(t, "app", func(w http.ResponseWriter, _ *http.Request) bool {
		w.Write(make([]byte, 12<<10))
		return true
	})})
	if took := time.Since(begun); took < 1900*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// TestTaskCompression: the client that the page has gets what the backend has sent, and the backend does not hear what it accepts. Each client gets the encoding that it accepts, and
// gzip from 1 KiB on.
func TestTaskCompression(t *testing.T) {
	t.Parallel()
	asExample(t, "compression")
	b := newBackend(t, "app", func(w http.ResponseWriter, r *http.Request) bool {
		if _, ok := r.Header["Accept-Encoding"]; ok {
			t.Errorf("the backend got Accept-Encoding %q", r.Header["Accept-Encoding"])
		}
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			n = 100
		}
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, strings.Repeat("order ", n))
		return true
	})
	runTask(t, "compression", map[int]*backend{3000: b})
	url := startExample(t, "compression", b)
	for _, c := range []struct {
		accept string
		words  int
		want   string
	}{
		{"zstd, gzip", 5, "zstd"}, {"zstd, gzip", 4, ""}, {"br;q=0.5", 100, "br"}, {"gzip", 170, ""}, {"gzip", 171, "gzip"}, {"", 171, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprint(url, "/", c.words), nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.accept != "" {
			req.Header.Set("Accept-Encoding", c.accept)
		}
		resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := resp.Header.Get("Content-Encoding")
		if got == "gzip" {
			var r *gzip.Reader
			if r, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
				body, err = io.ReadAll(r)
			}
		}
		if got != c.want || err != nil || (got == "" || got == "gzip") && string(body) != strings.Repeat("order ", c.words) {
			t.Errorf("%q, %d words: encoding %q, %v: %q", c.accept, c.words, got, err, body)
		}
	}
}
