package session

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func keysOf(t testing.TB, fill ...byte) *Keys {
	t.Helper()
	var secrets [][]byte
	for _, b := range fill {
		secrets = append(secrets, bytes.Repeat([]byte{b}, KeySize))
	}
	k, err := NewKeys(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func settingsOf(t testing.TB, c *config.SessionPersistence) *Settings {
	t.Helper()
	if c.Name == "" {
		c.Name = "s"
	}
	if c.Path == "" {
		c.Path = "/"
	}
	s, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(fields ...string) *message.Fields {
	h := &message.Fields{}
	for i := 0; i < len(fields); i += 2 {
		h.Add([]byte(fields[i]), []byte(fields[i+1]))
	}
	return h
}

// issue is the token that a client gets for a session with an endpoint of a backend.
func issue(s *Settings, k *Keys, backend, endpoint uint64, at time.Time) string {
	var t Token
	t.Keep(s, backend, endpoint, at)
	return string(k.appendToken(nil, s.purpose, &t))
}

var noon = time.Unix(1_800_000_000, 0)

func TestTokens(t *testing.T) {
	k, s := keysOf(t, 1, 2), settingsOf(t, &config.SessionPersistence{})
	good := issue(s, k, 7, 9, noon)
	for name, tc := range map[string]struct {
		fields []string
		keys   *Keys
		s      *Settings
		want   uint64 // 0 is no session
	}{
		"cookie":               {fields: []string{"Cookie", "s=" + good}, want: 9},
		"among others":         {fields: []string{"Cookie", "a=b; s=" + good + "; ss=x"}, want: 9},
		"without spaces":       {fields: []string{"cookie", "a=b;s=" + good}, want: 9},
		"quoted":               {fields: []string{"Cookie", `s="` + good + `"`}, want: 9},
		"second line":          {fields: []string{"Cookie", "a=b", "X", "y", "Cookie", "s=" + good}, want: 9},
		"behind another's":     {fields: []string{"Cookie", "s=JSESSION; s=" + good}, want: 9},
		"behind too many":      {fields: []string{"Cookie", strings.Repeat("s=x; ", maxRead) + "s=" + good}},
		"end of another name":  {fields: []string{"Cookie", "as=" + good}},
		"name in another case": {fields: []string{"Cookie", "S=" + good}},
		"none":                 {},
		"empty":                {fields: []string{"Cookie", "s="}},
		"header, not asked":    {fields: []string{"s", good}},
		"key before":           {fields: []string{"Cookie", "s=" + good}, keys: keysOf(t, 3, 1), want: 9},
		"other key":            {fields: []string{"Cookie", "s=" + good}, keys: keysOf(t, 2)},
		"other cookie":         {fields: []string{"Cookie", "o=" + good}, s: settingsOf(t, &config.SessionPersistence{Name: "o"})},
		"header of that name":  {fields: []string{"s", good}, s: settingsOf(t, &config.SessionPersistence{Header: true})},
		"cut":                  {fields: []string{"Cookie", "s=" + good[:len(good)-1]}},
		"longer":               {fields: []string{"Cookie", "s=" + good + "A"}},
		"padded":               {fields: []string{"Cookie", "s=" + good + "="}},
		"far too long":         {fields: []string{"Cookie", "s=" + strings.Repeat("A", 4000)}},
	} {
		if tc.keys == nil {
			tc.keys = k
		}
		if tc.s == nil {
			tc.s = s
		}
		var token Token
		tc.s.Read(tc.keys, request(tc.fields...), &token)
		if got, ok := token.Endpoint(tc.s, 7, noon); got != tc.want || ok != (tc.want != 0) {
			t.Errorf("%s: endpoint %d, %t, want %d", name, got, ok, tc.want)
		}
		if _, ok := token.Endpoint(tc.s, 8, noon); ok {
			t.Errorf("%s: a session with another backend", name)
		}
	}
}

// TestAlteredTokens: no token that differs in any bit is one.
func TestAlteredTokens(t *testing.T) {
	k, s := keysOf(t, 1), settingsOf(t, &config.SessionPersistence{})
	raw, err := encoding.DecodeString(issue(s, k, 7, 9, noon))
	if err != nil {
		t.Fatal(err)
	}
	var token Token
	if !k.read(&token, s.purpose, []byte(encoding.EncodeToString(raw))) {
		t.Fatal("it is none as it is")
	}
	for bit := range len(raw) * 8 {
		raw[bit/8] ^= 1 << (bit % 8)
		if k.read(&token, s.purpose, []byte(encoding.EncodeToString(raw))) || token.n != 0 {
			t.Errorf("with bit %d changed it is one", bit)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
}

func TestTimeouts(t *testing.T) {
	k := keysOf(t, 1)
	const absolute, idle = 10 * time.Minute, time.Minute
	s := settingsOf(t, &config.SessionPersistence{AbsoluteTimeoutNanos: int64(absolute), IdleTimeoutNanos: int64(idle)})
	at, first := noon, issue(s, k, 7, 9, noon)
	held := first
	for at.Sub(noon) < absolute {
		var token Token
		if s.Read(k, request("Cookie", "s="+held), &token); token.n != 1 {
			t.Fatalf("after %s: %d sessions", at.Sub(noon), token.n)
		}
		if _, ok := token.Endpoint(s, 7, at); !ok {
			t.Fatalf("after %s the session is over", at.Sub(noon))
		}
		if _, ok := token.Endpoint(s, 7, at.Add(idle)); ok {
			t.Errorf("after %s and a minute without a request the session goes on", at.Sub(noon))
		}
		if again := token.Keep(s, 7, 9, at); again != (at != noon) {
			t.Errorf("after %s: the client is given it again: %t", at.Sub(noon), again)
		}
		held = string(k.appendToken(nil, s.purpose, &token))
		at = at.Add(idle - time.Second)
	}
	for what, replayed := range map[string]string{"the last": held, "the first": first} {
		var token Token
		s.Read(k, request("Cookie", "s="+replayed), &token)
		if _, ok := token.Endpoint(s, 7, noon.Add(absolute)); ok {
			t.Errorf("%s token is good after the session's end", what)
		}
		token.Keep(s, 7, 11, noon.Add(absolute))
		if e, ok := token.Endpoint(s, 7, noon.Add(absolute+idle-1)); e != 11 || !ok {
			t.Errorf("%s: the session after it is with endpoint %d, %t", what, e, ok)
		}
	}
}

// TestSeveralBackends: one token holds a session for each backend, up to a bound, beyond which the oldest goes.
func TestSeveralBackends(t *testing.T) {
	k, s := keysOf(t, 1), settingsOf(t, &config.SessionPersistence{})
	var token Token
	for b := range uint64(maxStays + 1) {
		if !token.Keep(s, b, 100+b, noon.Add(time.Duration(b)*time.Second)) {
			t.Errorf("backend %d: nothing has changed", b)
		}
	}
	encoded := k.appendToken(nil, s.purpose, &token)
	if len(encoded) > maxEncoded {
		t.Errorf("%d bytes, and %d are read at most", len(encoded), maxEncoded)
	}
	var read Token
	if !k.read(&read, s.purpose, encoded) {
		t.Fatal("it is no token")
	}
	for b := range uint64(maxStays + 1) {
		if e, ok := read.Endpoint(s, b, noon); ok != (b > 0) || ok && e != 100+b {
			t.Errorf("backend %d: endpoint %d, %t", b, e, ok)
		}
	}
	if read.Keep(s, 5, 105, noon.Add(time.Hour)) {
		t.Error("a request of a session that goes on has changed it")
	}
}

// TestRenewal: a token that an old key has signed is given again, once.
func TestRenewal(t *testing.T) {
	s := settingsOf(t, &config.SessionPersistence{})
	held := issue(s, keysOf(t, 1), 7, 9, noon)
	k := keysOf(t, 2, 1)
	for i, want := range []bool{true, false} {
		var token Token
		s.Read(k, request("Cookie", "s="+held), &token)
		if got := token.Keep(s, 7, 9, noon); got != want {
			t.Errorf("request %d: given again: %t", i, got)
		}
		held = string(k.appendToken(nil, s.purpose, &token))
	}
	var token Token
	if s.Read(keysOf(t, 2), request("Cookie", "s="+held), &token); token.n != 1 {
		t.Error("the new key alone does not do")
	}
}

func TestWrite(t *testing.T) {
	k := keysOf(t, 1)
	write := func(c *config.SessionPersistence, secure bool, h *message.Fields, at time.Time) {
		s := settingsOf(t, c)
		var token Token
		token.Keep(s, 7, 9, noon)
		s.Write(k, h, &token, nil, secure, at)
	}
	for name, tc := range map[string]struct {
		c      *config.SessionPersistence
		secure bool
		at     time.Duration
		want   http.Cookie
	}{
		"session":   {c: &config.SessionPersistence{}, want: http.Cookie{Path: "/"}},
		"secure":    {c: &config.SessionPersistence{Path: "/a"}, secure: true, want: http.Cookie{Path: "/a", Secure: true}},
		"absolute":  {c: &config.SessionPersistence{AbsoluteTimeoutNanos: int64(time.Hour)}, want: http.Cookie{Path: "/"}},
		"permanent": {c: &config.SessionPersistence{AbsoluteTimeoutNanos: int64(5 * time.Minute), Permanent: true}, want: http.Cookie{Path: "/", MaxAge: 300}},
		"later": {c: &config.SessionPersistence{AbsoluteTimeoutNanos: int64(5 * time.Minute), Permanent: true}, at: 100*time.Second + time.Millisecond,
			want: http.Cookie{Path: "/", MaxAge: 200}},
	} {
		h := &message.Fields{}
		write(tc.c, tc.secure, h, noon.Add(tc.at))
		line, _ := h.Get("set-cookie")
		got, err := http.ParseSetCookie(string(line))
		if err != nil {
			t.Errorf("%s: %q: %v", name, line, err)
			continue
		}
		if got.Name != "s" || got.Value == "" || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Path != tc.want.Path || got.Secure != tc.want.Secure ||
			got.MaxAge != tc.want.MaxAge || !got.Expires.IsZero() || got.Domain != "" {
			t.Errorf("%s: %s", name, line)
		}
	}
	h := request("Set-Cookie", "t=1", "Set-Cookie", "s=the backend's; Path=/")
	if write(&config.SessionPersistence{}, false, h, noon); h.Len() != 2 {
		t.Errorf("%d fields beside a cookie of the backend's", h.Len())
	}
	h = request("set-cookie", "t=1")
	if write(&config.SessionPersistence{}, false, h, noon); h.Len() != 2 {
		t.Errorf("%d fields beside another cookie", h.Len())
	}
	h = request("my-session", "the backend's", "x", "y", "My-Session", "more")
	write(&config.SessionPersistence{Name: "My-Session", Header: true}, false, h, noon)
	var token Token
	s := settingsOf(t, &config.SessionPersistence{Name: "my-sessioN", Header: true})
	if s.Read(k, h, &token); h.Len() != 2 || token.n != 1 {
		t.Errorf("%d fields, %d sessions in a header field", h.Len(), token.n)
	}
}

func TestCompile(t *testing.T) {
	for name, c := range map[string]*config.SessionPersistence{
		"no name":           {Path: "/"},
		"name with a line":  {Name: "a\r\nb", Path: "/"},
		"name with =":       {Name: "a=b", Path: "/"},
		"no path":           {Name: "a"},
		"attribute in path": {Name: "a", Path: "/; Domain=example.com"},
		"line in path":      {Name: "a", Path: "/\r\nX: y"},
		"permanent forever": {Name: "a", Path: "/", Permanent: true},
		"negative":          {Name: "a", Path: "/", IdleTimeoutNanos: -1},
	} {
		if s, err := Compile(c); err == nil || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := Compile(nil); s != nil || err != nil {
		t.Errorf("nil: %v, %v", s, err)
	}
	for _, secrets := range [][][]byte{{{1}}, {make([]byte, KeySize), nil}} {
		if k, err := NewKeys(secrets); err == nil || k != nil {
			t.Errorf("keys of %d and more bytes are taken", len(secrets[0]))
		}
	}
}

func BenchmarkKept(b *testing.B) {
	k, s := keysOf(b, 1), settingsOf(b, &config.SessionPersistence{})
	in, token := request("Cookie", "a=b; s="+issue(s, k, 7, 9, noon)), &Token{}
	b.ReportAllocs()
	for b.Loop() {
		s.Read(k, in, token)
		token.Keep(s, 7, 9, noon)
	}
}

// FuzzRead: whatever clients bring, there is a session only where what they bring was signed here, and what is read is written as it was.
func FuzzRead(f *testing.F) {
	k, s := keysOf(f, 1), settingsOf(f, &config.SessionPersistence{})
	signed := issue(s, k, 7, 9, noon)
	f.Add("s=" + signed)
	f.Add("a=b; s=\"" + signed + "\";;s=; s")
	f.Add(strings.Repeat("s=;", 100))
	f.Fuzz(func(t *testing.T, cookies string) {
		var token Token
		s.Read(k, request("Cookie", cookies), &token)
		if _, ok := token.Endpoint(s, 7, noon); ok && !strings.Contains(cookies, signed) {
			t.Errorf("a session of %q", cookies)
		}
		if token.n > 0 && string(k.appendToken(nil, s.purpose, &token)) != signed {
			t.Error("it is written otherwise")
		}
	})
}
