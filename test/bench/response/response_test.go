package response

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, text string) *Canonical {
	t.Helper()
	c, err := Read(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		t.Fatalf("Read(%q): %v", text, err)
	}
	return c
}

const plain = "HTTP/1.1 200 OK\r\nServer: o\r\nETag: \"x\"\r\nContent-Length: 5\r\n\r\nhello"

func TestOrderAndCaseOfNamesAreNoDifference(t *testing.T) {
	other := "HTTP/1.1 200 OK\r\ncontent-length:5\r\netag: \"x\" \r\nserver: o\r\n\r\nhello"
	if diff := Diff(read(t, plain), read(t, other)); diff != nil {
		t.Errorf("unexpected differences %q", diff)
	}
}

func TestEveryRealDifferenceIsFound(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"status", strings.Replace(plain, "200 OK", "200 Okay", 1), "+ HTTP/1.1 200 Okay"},
		{"version", strings.Replace(plain, "1.1", "1.0", 1), "+ HTTP/1.0 200 OK"},
		{"value", strings.Replace(plain, "Server: o", "Server: O", 1), "+ server: O"},
		{"missing field", strings.Replace(plain, "Server: o\r\n", "", 1), "- server: o"},
		{"additional field", strings.Replace(plain, "Server: o", "Via: x\r\nServer: o", 1), "+ via: x"},
		{"field twice", strings.Replace(plain, "Server: o", "Server: o\r\nServer: o", 1), "+ server: o"},
		{"body", strings.Replace(plain, "hello", "hellO", 1), "body: 5 bytes, want 5; first difference at byte 4"},
		{"short body", strings.Replace(plain, "5\r\n\r\nhello", "4\r\n\r\nhell", 1),
			"body: 4 bytes, want 5; first difference at byte 4"},
		{"chunked", "HTTP/1.1 200 OK\r\nServer: o\r\nETag: \"x\"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
			"+ transfer-encoding: chunked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := Diff(read(t, plain), read(t, c.text)); !slices.Contains(diff, c.want) {
				t.Errorf("differences %q, want %q among them", diff, c.want)
			}
		})
	}
}

func TestReadLeavesTheNextResponse(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
	r := bufio.NewReader(strings.NewReader(plain + chunked + plain))
	for range 3 {
		c, err := Read(r)
		if err != nil || string(c.Body) != "hello" {
			t.Fatalf("got %+v, %v", c, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       "",
		"bare LF":       "HTTP/1.1 200 OK\nServer: o\n\n",
		"no colon":      "HTTP/1.1 200 OK\r\nServer\r\n\r\n",
		"no framing":    "HTTP/1.1 200 OK\r\nServer: o\r\n\r\nhello",
		"bad length":    "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
		"cut-off body":  "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
		"cut-off chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	} {
		if c, err := Read(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: no error, got %+v", name, c)
		}
	}
}

func TestWithout(t *testing.T) {
	got := read(t, strings.Replace(plain, "Server: o", "Connection: keep-alive\r\nServer: o", 1))
	expected := []string{"connection: keep-alive"}
	if diff := Diff(read(t, plain), got.Without(expected)); diff != nil {
		t.Errorf("unexpected differences %q", diff)
	}
	if diff := Diff(read(t, plain), got); len(diff) != 1 {
		t.Errorf("Without changed its receiver: %q", diff)
	}
}

func TestHead(t *testing.T) {
	got := Head([]byte("GET / HTTP/1.1\r\nX-B: 2\r\nHost: a\r\n\r\n"))
	want := []string{"GET / HTTP/1.1", "host: a", "x-b: 2"}
	if !slices.Equal(got, want) {
		t.Errorf("Head = %q, want %q", got, want)
	}
}
