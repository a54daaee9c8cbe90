package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// sessionKeys has sessions of the Gateway signed.
func sessionKeys() *config.Resource {
	return &config.Resource{Kind: &config.Resource_TicketKeys{TicketKeys: &config.TicketKeys{
		Key: "default/gw", Keys: [][]byte{make([]byte, 32)}, SessionKeys: [][]byte{bytes.Repeat([]byte{1}, 32)},
	}}}
}

// member is a backend endpoint that answers with its name, unless it answers with a status.
type member struct {
	name, addr string
	status     atomic.Int64
}

func newMember(t testing.TB, name string) *member {
	m := &member{name: name}
	m.addr = rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			if status := m.status.Load(); status != 0 {
				fmt.Fprintf(c, "HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", status)
				continue
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(m.name), m.name)
		}
	})
	return m
}

func endpointOf(addr string, identity uint64) *config.Endpoint {
	ap := netip.MustParseAddrPort(addr)
	return &config.Endpoint{Address: ap.Addr().String(), Port: uint32(ap.Port()), Identity: identity}
}

func endpointsOf(key string, list ...*config.Endpoint) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key, Endpoints: list}}}
}

// visitor is a client with a session: it brings what it was given.
type visitor struct {
	t      testing.TB
	c      net.Conn
	r      *bufio.Reader
	header string // the name of the field of its session; "" for a cookie named s
	token  string
	given  int // how often it was given a token
}

func (g *gateway) visitor() *visitor {
	c := g.dial()
	return &visitor{t: g.t, c: c, r: bufio.NewReader(c)}
}

// ask returns the status, and which endpoint has answered.
func (v *visitor) ask() (status int, name string) {
	v.c.SetDeadline(time.Now().Add(testkit.Patience))
	field := ""
	switch {
	case v.token == "":
	case v.header != "":
		field = v.header + ": " + v.token + "\r\n"
	default:
		field = "Cookie: a=b; s=" + v.token + "\r\n"
	}
	if _, err := fmt.Fprintf(v.c, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", field); err != nil {
		v.t.Error(err)
		return 0, ""
	}
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		v.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	var body [64]byte
	n, _ := resp.Body.Read(body[:])
	if v.header != "" && resp.Header.Get(v.header) != "" {
		v.token, v.given = resp.Header.Get(v.header), v.given+1
	}
	for _, c := range resp.Cookies() {
		if c.Name == "s" {
			v.token, v.given = c.Value, v.given+1
		}
	}
	return resp.StatusCode, string(body[:n])
}

var bySession = &config.SessionPersistence{Name: "s", Path: "/"}

// persistent has requests go to members by sessions.
func (g *gateway) persistent(s *config.SessionPersistence, change func(*config.Rule), endpoints ...*config.Endpoint) {
	g.t.Helper()
	rule := &config.Rule{
		Matches:            []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs:        []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
		SessionPersistence: s,
	}
	if change != nil {
		change(rule)
	}
	g.apply([]*config.Resource{sessionKeys(), backend("Service/default/b/80")[0], endpointsOf("Service/default/b/80", endpoints...), g.httpListener("http", ""),
		routeOf("r", "default/gw/http", "", rule)})
}

// TestSessionPersistence: requests that bring the token go to one endpoint while it is there, draining too, and to another one for good when it is not.
func TestSessionPersistence(t *testing.T) {
	t.Parallel()
	members := make([]*member, 8)
	var endpoints []*config.Endpoint
	for i := range members {
		members[i] = newMember(t, fmt.Sprint(i))
		endpoints = append(endpoints, endpointOf(members[i].addr, uint64(i+1)))
	}
	for name, tc := range map[string]struct {
		s      *config.SessionPersistence
		header string
		// given is how often a client is given a token in n requests.
		given func(n int) int
	}{
		"cookie": {bySession, "", func(int) int { return 1 }},
		"header": {&config.SessionPersistence{Name: "My-Session", Header: true}, "My-Session", func(n int) int { return n }},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			g.persistent(tc.s, nil, endpoints...)
			v := g.visitor()
			v.header = tc.header
			_, first := v.ask()
			stays := func(what string, n int) {
				t.Helper()
				for range n {
					if status, name := v.ask(); status != 200 || name != first {
						t.Fatalf("%s: %d from %q, the session is with %q", what, status, name, first)
					}
				}
			}
			stays("at first", 50)
			if want := tc.given(51); v.given != want {
				t.Errorf("it was given %d tokens in 51 requests, want %d", v.given, want)
			}
			var without []*config.Endpoint
			var own *config.Endpoint
			for i, e := range endpoints {
				if members[i].name == first {
					own = e
				} else {
					without = append(without, e)
				}
			}
			g.persistent(tc.s, nil, append([]*config.Endpoint{{Address: own.Address, Port: own.Port, Identity: own.Identity, Terminating: true}}, without...)...)
			stays("while it is draining", 20)
			g.persistent(tc.s, nil, append([]*config.Endpoint{{Address: own.Address, Port: own.Port, Identity: 99}}, without...)...)
			_, moved := v.ask()
			first = moved
			stays("after another pod has got its address", 20)
			g.persistent(tc.s, nil, without...)
			if _, now := v.ask(); now == members[own.Identity-1].name {
				t.Errorf("an endpoint that is gone has answered")
			} else {
				first = now
			}
			stays("after it was gone", 20)
			testkit.Eventually(t, "lines with each result", func() bool {
				log := g.log.String()
				return strings.Count(log, `"session":"new"`) == 1 && strings.Contains(log, `"session":"moved"`) && strings.Contains(log, `"session":"kept"`)
			})
		})
	}
}

// TestSessionOfBackend: what the Backend says of sessions is in force where the rule says nothing, and without keys nothing persists.
func TestSessionOfBackend(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	g := startGateway(t, Timeouts{})
	g.persistent(nil, nil, endpointOf(a.addr, 1), endpointOf(b.addr, 2))
	v := g.visitor()
	if v.ask(); v.token != "" {
		t.Error("a token where no sessions persist")
	}
	of := backend("Service/default/b/80")[0]
	of.GetBackend().SessionPersistence = bySession
	g.apply([]*config.Resource{of})
	_, first := v.ask()
	for range 20 {
		if _, name := v.ask(); name != first {
			t.Fatalf("from %q to %q", first, name)
		}
	}
	if v.given != 1 {
		t.Errorf("%d tokens", v.given)
	}
	g.apply(nil, config.ID{Kind: config.KindTicketKeys, Key: "default/gw"})
	v.token = ""
	if status, _ := v.ask(); status != 200 || v.token != "" {
		t.Errorf("without keys: %d, token %q", status, v.token)
	}
}

// TestSessionBrokenOff: a response that the backend breaks off says nothing of its session, in the log and in what is counted; one that ends does.
func TestSessionBrokenOff(t *testing.T) {
	t.Parallel()
	var whole atomic.Bool
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := readHead(r); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
		if io.WriteString(c, "half"[:2]); whole.Load() {
			io.WriteString(c, "half"[2:])
		}
	})
	g := startGateway(t, Timeouts{})
	g.persistent(bySession, nil, endpointOf(addr, 1))
	for i, want := range []string{"", "", "new"} {
		whole.Store(want != "")
		c := g.dial()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, io.LimitReader(c, 1<<10)) //nolint:errcheck // up to the end, however it comes
		if reason := g.reasonsLogged(i + 1)[i]; (reason == "ok") != (want != "") {
			t.Errorf("request %d: %s", i, reason)
		}
	}
	if log := g.log.String(); strings.Count(log, `"session":`) != 1 || strings.Count(log, `"session":"new"`) != 1 {
		t.Errorf("the log tells of sessions: %s", log)
	}
	if s := g.upstreams.Get("Service/default/b/80").Stats(); s.SessionsBegun != 1 || s.SessionsKept != 0 {
		t.Errorf("%d sessions have begun, %d were kept", s.SessionsBegun, s.SessionsKept)
	}
}

// TestSessionOfOwnCookie: where the backend sets the session's cookie itself no session begins or moves, and neither the log nor what is counted says so.
func TestSessionOfOwnCookie(t *testing.T) {
	t.Parallel()
	var own atomic.Bool
	answer := func(c net.Conn, r *bufio.Reader) {
		for {
			if _, err := readHead(r); err != nil {
				return
			}
			cookie := ""
			if own.Load() {
				cookie = "Set-Cookie: s=mine\r\n"
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n"+cookie+"Content-Length: 1\r\n\r\na")
		}
	}
	first, second := rawBackend(t, answer), rawBackend(t, answer)
	g := startGateway(t, Timeouts{})
	g.persistent(bySession, nil, endpointOf(first, 1))
	v := g.visitor()
	for i, step := range []struct {
		own      bool
		endpoint *config.Endpoint // nil as before
		token    string           // "" is one of ours
		want     string
	}{
		{true, nil, "mine", ""}, {true, nil, "mine", ""}, {false, nil, "", "new"}, {false, nil, "", "kept"}, {true, endpointOf(second, 2), "mine", ""}, {false, nil, "", "new"}, {true, nil, "", "kept"},
	} {
		own.Store(step.own)
		if step.endpoint != nil {
			g.persistent(bySession, nil, step.endpoint)
		}
		if status, _ := v.ask(); status != 200 || step.token != "" && v.token != step.token {
			t.Fatalf("request %d: %d, token %q", i, status, v.token)
		}
		g.reasonsLogged(i + 1)
		line := strings.Split(strings.TrimSpace(g.log.String()), "\n")[i]
		if has := strings.Contains(line, `"session":`); has != (step.want != "") || has && !strings.Contains(line, `"session":"`+step.want+`"`) {
			t.Errorf("request %d: want session %q in %s", i, step.want, line)
		}
	}
	if s := g.upstreams.Get("Service/default/b/80").Stats(); s.SessionsBegun != 2 || s.SessionsKept != 2 || s.SessionsMoved != 0 {
		t.Errorf("%d sessions have begun, %d were kept, %d moved", s.SessionsBegun, s.SessionsKept, s.SessionsMoved)
	}
}

// TestSessionRetries: a retry goes to the session's endpoint, as long as it takes connections; where it takes none the session moves.
func TestSessionRetries(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	g := startGateway(t, Timeouts{})
	retried := func(r *config.Rule) { r.Retry = &config.Retry{Attempts: 3, Codes: []uint32{503}, BackoffNanos: 1} }
	g.persistent(bySession, retried, endpointOf(a.addr, 1))
	v := g.visitor()
	v.ask()
	g.persistent(bySession, retried, endpointOf(a.addr, 1), endpointOf(b.addr, 2))
	a.status.Store(503)
	for range 10 {
		if status, name := v.ask(); status != 503 {
			t.Fatalf("%d from %q: a retry has left the session", status, name)
		}
	}
	a.status.Store(0)
	v.token = tokenOfRefused(t, g, retried, endpointOf(b.addr, 2))
	given := v.given
	for range 10 {
		if status, name := v.ask(); status != 200 || name != "b" {
			t.Fatalf("%d from %q", status, name)
		}
	}
	if v.given != given+1 {
		t.Errorf("the session has moved %d times", v.given-given)
	}
}

// tokenOfRefused returns a token of a session with an endpoint that refuses connections when it returns.
func tokenOfRefused(t *testing.T, g *gateway, change func(*config.Rule), others ...*config.Endpoint) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go s.Serve(l)
	g.persistent(bySession, change, endpointOf(addr, 7))
	v := g.visitor()
	v.ask()
	s.Close()
	refusedAt(t, l.Addr().(*net.TCPAddr).Port)
	g.persistent(bySession, change, append(others, endpointOf(addr, 7))...)
	return v.token
}

// TestSessionsInTraffic: of 2,000 sessions with 20 endpoints that come and go, each whose endpoint is there stays, in 100,000 requests (20,000 with the race detector). The backends' weights hold all the
// same, and tokens that were altered, signed by somebody else, or are brought again when their sessions are over, choose nothing.
func TestSessionsInTraffic(t *testing.T) {
	t.Parallel()
	const clients, sessions, perBackend = 16, 2000, 10
	requests := 100_000
	if raceDetector {
		requests /= 5
	}
	keys := [2]string{"Service/default/b/80", "Service/default/c/80"}
	g := startGateway(t, Timeouts{})
	type seat struct {
		*member
		// life counts the pods that were at its address; it is odd while one is there. It changes before the proxy hears that a pod goes, and after it has heard that one came.
		life atomic.Int64
	}
	var seats [2][perBackend]*seat
	byName := map[string]*seat{}
	for b := range keys {
		for i := range perBackend {
			s := &seat{member: newMember(t, fmt.Sprintf("%d/%d", b, i))}
			s.life.Store(1)
			seats[b][i], byName[s.name] = s, s
		}
	}
	endpoints := func(b int, also *seat) *config.Resource {
		var list []*config.Endpoint
		for i, s := range seats[b] {
			if life := s.life.Load(); life%2 == 1 || s == also {
				list = append(list, endpointOf(s.addr, uint64(1+i+(int(life)|1)*100+b*1_000_000)))
			}
		}
		return endpointsOf(keys[b], list...)
	}
	rule := &config.Rule{
		Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
		BackendRefs: []*config.BackendRef{{Backend: keys[0], Weight: 70}, {Backend: keys[1], Weight: 30}},
		// No session of the test lasts as long, but one that began before it may have.
		SessionPersistence: &config.SessionPersistence{Name: "s", Path: "/", AbsoluteTimeoutNanos: int64(time.Hour)},
	}
	g.apply([]*config.Resource{sessionKeys(), backend(keys[0])[0], backend(keys[1])[0], endpoints(0, nil), endpoints(1, nil), g.httpListener("http", ""),
		routeOf("r", "default/gw/http", "", rule)})

	// A pod comes or goes every so many requests, so that the machine's speed does not matter.
	const perChange = 200
	changes := make(chan struct{}, requests/perChange+1)
	var churn, all sync.WaitGroup
	churn.Go(func() {
		there := [2]int{perBackend, perBackend}
		r := rand.New(rand.NewPCG(1, 2))
		for range changes {
			b := r.IntN(2)
			s := seats[b][r.IntN(perBackend)]
			switch life := s.life.Load(); {
			case life%2 == 1 && there[b] > perBackend/2: // a pod goes
				there[b]--
				s.life.Add(1)
				g.apply([]*config.Resource{endpoints(b, nil)})
			case life%2 == 0: // another one comes to the address
				there[b]++
				resource := endpoints(b, s)
				g.apply([]*config.Resource{resource})
				s.life.Add(1)
			}
		}
	})
	forger := newForger(t, rule.SessionPersistence)
	var asked atomic.Int64
	var chosen [2]atomic.Int64
	var stayed, refused, named atomic.Int64 // sessions that went on, tokens that are no good, and those of them whose endpoint has answered
	for c := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 3))
			type held struct {
				token string
				with  [2]*seat
				life  [2]int64
			}
			own := make([]held, sessions/clients)
			v := g.visitor()
			for range requests / clients {
				h := &own[r.IntN(len(own))]
				v.token, v.given = h.token, 0
				way := r.IntN(60) // of which the first three make the token one that is no good
				bad := h.token != "" && way < 3
				switch {
				case !bad:
					if h.token != "" && way == 3 && forger.write(forger.own, forger.read(h.token)) != h.token {
						t.Errorf("the forger writes another token than %q with the gateway's keys", h.token)
					}
				case way == 0: // altered
					b := []byte(h.token)
					b[r.IntN(len(b))] ^= 1 << r.IntN(3)
					v.token = string(b)
				case way == 1: // of the same endpoints, and signed by somebody else
					v.token = forger.signed(h.token)
				default: // of the same endpoints, and over
					v.token = forger.over(h.token, g.upstreams.Get(keys[0]).SessionID(), g.upstreams.Get(keys[1]).SessionID())
				}
				var lives [2][perBackend]int64
				for b := range seats {
					for i, s := range seats[b] {
						lives[b][i] = s.life.Load()
					}
				}
				status, name := v.ask()
				s := byName[name]
				if status != 200 || s == nil {
					t.Errorf("%d from %q", status, name)
					return
				}
				b := int(name[0] - '0')
				chosen[b].Add(1)
				if asked.Add(1)%perChange == 0 {
					changes <- struct{}{}
				}
				if bad {
					if refused.Add(1); v.given == 0 {
						t.Errorf("a token that is no good is taken, made in way %d of %q", way, h.token)
						return
					}
					if h.with[b] == s {
						named.Add(1)
					}
					continue
				}
				h.token = v.token
				before, lived := h.with[b], h.life[b]
				h.with[b], h.life[b] = s, 0
				if life := s.life.Load(); life == lives[b][slices.Index(seats[b][:], s)] {
					h.life[b] = life // else it is not known which pod has answered
				}
				if before != nil && before != s && lived%2 == 1 && before.life.Load() == lived {
					t.Errorf("a session with %s, which is there, was answered by %s", before.name, name)
					return
				}
				if before != nil && before == s && lived%2 == 1 {
					stayed.Add(1)
				}
			}
		})
	}
	all.Wait()
	close(changes)
	churn.Wait()
	n := float64(chosen[0].Load() + chosen[1].Load())
	if n != float64(requests) && !t.Failed() {
		t.Errorf("%v requests", n)
	}
	if off, sigma := math.Abs(float64(chosen[0].Load())-0.7*n), math.Sqrt(n*0.7*0.3); off > 6*sigma {
		t.Errorf("%d of %v requests went to the backend with 70 %%", chosen[0].Load(), n)
	}
	if stayed.Load() < int64(requests/4) {
		t.Errorf("%d requests went on with a session whose endpoint was known", stayed.Load())
	}
	// An endpoint that nothing chooses is one of 5 at least of its backend, which has 70 % of the requests at most.
	if refused.Load() < int64(requests/50) || float64(named.Load()) > 0.25*float64(refused.Load()) {
		t.Errorf("%d tokens were no good, and the endpoints of %d of them have answered", refused.Load(), named.Load())
	}
	stats := g.upstreams.Get(keys[0]).Stats()
	t.Logf("backend of 70 %%: %d sessions begun, %d requests kept, %d moved; %d requests are known to have stayed, %d tokens were no good, and the endpoints of %d of them have answered",
		stats.SessionsBegun, stats.SessionsKept, stats.SessionsMoved, stayed.Load(), refused.Load(), named.Load())
}

// forger makes tokens that gateways must not take.
type forger struct {
	settings     *session.Settings
	own, another *session.Keys // the gateway's, and somebody else's
}

func newForger(t testing.TB, c *config.SessionPersistence) *forger {
	t.Helper()
	settings, err := session.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	own, err := session.NewKeys(sessionKeys().GetTicketKeys().SessionKeys)
	if err != nil {
		t.Fatal(err)
	}
	another, err := session.NewKeys([][]byte{bytes.Repeat([]byte{2}, session.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	return &forger{settings, own, another}
}

// signed returns the token with somebody else's signature.
func (f *forger) signed(token string) string {
	return f.write(f.another, f.read(token))
}

// over returns the token of the same endpoints with sessions that began two hours ago, as the gateway has signed it then.
func (f *forger) over(token string, backends ...uint64) string {
	t := f.read(token)
	var old session.Token
	for _, b := range backends {
		if endpoint, ok := t.Endpoint(f.settings, b, time.Now()); ok {
			old.Keep(f.settings, b, endpoint, time.Now().Add(-2*time.Hour))
		}
	}
	return f.write(f.own, &old)
}

func (f *forger) read(token string) *session.Token {
	var h message.Fields
	h.Add([]byte("Cookie"), []byte("s="+token))
	t := &session.Token{}
	f.settings.ReadUnverified(&h, t)
	return t
}

func (f *forger) write(k *session.Keys, t *session.Token) string {
	var h message.Fields
	f.settings.Write(k, &h, t, nil, false, time.Now())
	cookie, _ := h.Get("Set-Cookie")
	value, _, _ := strings.Cut(strings.TrimPrefix(string(cookie), "s="), ";")
	return value
}

// TestSessionOver: a token says when its session began, and a client that keeps it for longer than the session lasts has none.
func TestSessionOver(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	g := startGateway(t, Timeouts{})
	brief := &config.SessionPersistence{Name: "s", Path: "/", AbsoluteTimeoutNanos: int64(50 * time.Millisecond)}
	g.persistent(brief, nil, endpointOf(a.addr, 1), endpointOf(b.addr, 2))
	v := g.visitor()
	v.ask()
	first := v.token
	time.Sleep(60 * time.Millisecond)
	for range 20 {
		given := v.given
		v.token = first
		if v.ask(); v.given != given+1 {
			t.Fatal("a token whose session is over has chosen the endpoint")
		}
	}
}
