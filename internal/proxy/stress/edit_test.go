package stress

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const (
	hostname    = "stress.example"
	backendName = "backend.example" // in the certificate of backends, as is otherName
	otherName   = "other.example"
)

// Classes of paths: each is a route of its own.
var (
	classes     = []string{"any", "any", "any", "plain", "mixed", "mixed", "turning", "h2c", "timed", "flap", "mirror"}
	calmClasses = []string{"any", "plain", "mixed", "turning", "h2c", "timed", "mirror"}
)

// service is a Service of the configuration, and what stands behind it.
type service struct {
	name  string
	peers []*peer
	tls   bool
	// What edits change.
	protocol   config.BackendProtocol
	serverName string
	endpoints  *config.Endpoints
	mayBeEmpty bool
	turns      bool // the protocol changes
}

func (s *service) key() string { return "Service/default/" + s.name + "/80" }

// newServices makes the services:
//
//	plain    HTTP/1.1 in the clear
//	h2c      HTTP/2 in the clear
//	mixed    TLS, with endpoints that choose HTTP/2, HTTP/1.1, and now this and now that
//	turning  in the clear, by a protocol that is edited all the time
//	sink     gets copies only, by HTTP/1.1
//	sink2    the same by HTTP/2
func (s *run) newServices() {
	add := func(name string, secure bool, n int) *service {
		sv := &service{name: name, tls: secure, serverName: backendName}
		for i := range n {
			p := &peer{s: s, name: fmt.Sprintf("%s%d", name, i), port: freePort(s.t), open: map[net.Conn]bool{}, sink: strings.HasPrefix(name, "sink")}
			if secure {
				p.secure = &s.backendCertificate
				p.alpn = [][]string{{"h2"}, {"http/1.1"}, nil}[i%3]
			}
			if err := p.listen(); err != nil {
				s.t.Fatal(err)
			}
			sv.peers = append(sv.peers, p)
		}
		s.services = append(s.services, sv)
		sv.setEndpoints(sv.peers, nil)
		return sv
	}
	add("plain", false, 3).mayBeEmpty = true
	add("h2c", false, 3).protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
	add("mixed", true, 3)
	add("turning", false, 2).turns = true
	add("sink", false, 1)
	add("sink2", false, 1).protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
}

func (s *service) setEndpoints(peers []*peer, terminating func() bool) {
	e := &config.Endpoints{Key: s.key()}
	for _, p := range peers {
		e.Endpoints = append(e.Endpoints, &config.Endpoint{Address: "127.0.0.1", Port: uint32(p.port), Terminating: terminating != nil && terminating()})
	}
	slices.SortFunc(e.Endpoints, func(a, b *config.Endpoint) int { return int(a.Port) - int(b.Port) })
	s.endpoints = e
}

func (s *run) backendResource(sv *service) *config.Resource {
	b := &config.Backend{Key: sv.key(), Protocol: sv.protocol}
	if sv.tls {
		b.Tls = &config.BackendTLS{ServerName: sv.serverName, Authorities: []string{config.AuthoritiesKey(string(s.authority))}}
	}
	return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
}

func endpointsResource(sv *service) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: sv.endpoints}}
}

func listener(name string, port int, certificates ...string) *config.Resource {
	l := &config.Listener{Key: "default/gw/" + name, Gateway: "default/gw", Name: name, Port: uint32(port), Protocol: config.Protocol_PROTOCOL_HTTP}
	if certificates != nil {
		l.Protocol, l.Certificates = config.Protocol_PROTOCOL_HTTPS, certificates
	}
	return &config.Resource{Kind: &config.Resource_Listener{Listener: l}}
}

// route is the route of a class, with a weight for each service by name.
func route(class string, weights map[string]uint32, change func(*config.Rule)) *config.Resource {
	rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: "/" + class}}}}
	for _, name := range []string{"plain", "h2c", "mixed", "turning"} {
		if w := weights[name]; w > 0 {
			rule.BackendRefs = append(rule.BackendRefs, &config.BackendRef{Backend: "Service/default/" + name + "/80", Weight: w})
		}
	}
	if change != nil {
		change(rule)
	}
	r := &config.Route{Key: "HTTPRoute/default/" + class, Namespace: "default", Name: class, Rules: []*config.Rule{rule}}
	for _, l := range []string{"http", "https", "other"} {
		r.Attachments = append(r.Attachments, &config.Attachment{Listener: "default/gw/" + l, Hostnames: []*config.Hostname{{}}})
	}
	return &config.Resource{Kind: &config.Resource_Route{Route: r}}
}

func timed(t time.Duration) func(*config.Rule) {
	return func(r *config.Rule) { r.BackendRequestTimeoutNanos, r.RequestTimeoutNanos = int64(t), 2*int64(t) }
}

func mirrored(t testing.TB) func(*config.Rule) {
	var filters []*anypb.Any
	for _, name := range []string{"sink", "sink2"} {
		filter, err := anypb.New(&config.RequestMirror{Backend: "Service/default/" + name + "/80", Numerator: 1, Denominator: 1})
		if err != nil {
			t.Fatal(err)
		}
		filters = append(filters, filter)
	}
	return func(r *config.Rule) { r.Filters = filters }
}

// everywhere is the weights of the class "any" where nothing else is wanted.
var everywhere = map[string]uint32{"plain": 1, "h2c": 1, "mixed": 1, "turning": 1}

// wholeConfiguration is all there is, with every endpoint, and limits that a calm request keeps.
func (s *run) wholeConfiguration() (all []*config.Resource) {
	authority := string(s.authority)
	all = append(all, &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: config.AuthoritiesKey(authority), Pem: authority}}})
	all = append(all, s.certificates[0], listener("http", s.port), listener("https", s.securePort, "front"), listener("other", s.otherPort),
		route("any", everywhere, nil), route("plain", map[string]uint32{"plain": 1}, nil), route("mixed", map[string]uint32{"mixed": 1}, nil), route("turning", map[string]uint32{"turning": 1}, nil),
		route("h2c", map[string]uint32{"h2c": 1}, nil), route("timed", everywhere, timed(longest)), route("flap", map[string]uint32{"plain": 1, "h2c": 1}, nil), route("mirror", everywhere, mirrored(s.t)))
	for _, sv := range s.services {
		sv.setEndpoints(sv.peers, nil)
		sv.serverName = backendName
		all = append(all, s.backendResource(sv), endpointsResource(sv))
	}
	return all
}

// apply puts a change in force.
func (s *run) apply(what string, upserts []*config.Resource, removals ...config.ID) {
	s.count("edit: " + what)
	s.generation++
	r := s.proxy.Apply(&config.Update{Generation: s.generation, Upserts: upserts, Removals: removals})
	for key, err := range r.Listeners {
		s.fail(nil, "listener %s: %v", key, err)
	}
	for id, err := range r.Rejected {
		s.fail(nil, "%s: %v", id, err)
	}
}

// edit changes the configuration, and what stands behind it, until the run ends.
func (s *run) edit() {
	d := newDice(s.seed, 1<<60)
	otherThere := true
	for s.pause(time.Duration(1+d.IntN(40)) * time.Millisecond) {
		sv := s.services[d.IntN(len(s.services)-2)] // the sinks stay
		switch d.IntN(14) {
		case 0, 1, 2:
			subset := slices.Clone(sv.peers)
			d.Shuffle(len(subset), func(i, j int) { subset[i], subset[j] = subset[j], subset[i] })
			least := 1
			if sv.mayBeEmpty && d.oneIn(4) {
				least = 0
			}
			subset = subset[:least+d.IntN(len(subset)-least+1)]
			var terminating func() bool
			if d.oneIn(4) {
				terminating = func() bool { return d.oneIn(2) }
			}
			sv.setEndpoints(subset, terminating)
			s.apply("endpoints", []*config.Resource{endpointsResource(sv)})
		case 3, 4, 5:
			sv = s.services[3]
			sv.protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C - sv.protocol
			s.apply("protocol", []*config.Resource{s.backendResource(sv)})
		case 6, 7:
			s.apply("weights", []*config.Resource{route("any", map[string]uint32{
				"plain": uint32(d.IntN(3)), "h2c": uint32(d.IntN(3)), "mixed": uint32(d.IntN(3)), "turning": 1}, nil)})
		case 8:
			s.apply("timeout", []*config.Resource{route("timed", everywhere, timed(time.Duration(1+d.IntN(300))*time.Millisecond))})
		case 9:
			if d.oneIn(3) {
				s.apply("route gone", nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/flap"})
			} else {
				s.apply("route", []*config.Resource{route("flap", map[string]uint32{"plain": 1, "h2c": 1}, nil)})
			}
		case 10:
			s.apply("certificate", []*config.Resource{s.certificates[d.IntN(2)]})
		case 11:
			if otherThere = !otherThere; otherThere {
				s.apply("listener", []*config.Resource{listener("other", s.otherPort)})
			} else {
				s.apply("listener gone", nil, config.ID{Kind: config.KindListener, Key: "default/gw/other"})
			}
		case 12:
			sv = s.services[2]
			if sv.serverName = of(d, backendName, otherName); d.oneIn(8) {
				sv.serverName = "wrong.example"
			}
			s.apply("server name", []*config.Resource{s.backendResource(sv)})
		case 13:
			p := sv.peers[d.IntN(len(sv.peers))]
			s.count("edit: endpoint refuses connections")
			p.refuse()
			s.pause(time.Duration(d.IntN(60)) * time.Millisecond)
			s.reopen(p)
		}
	}
}

// reopen opens an endpoint's port again.
func (s *run) reopen(p *peer) {
	for end := time.Now().Add(longest); ; time.Sleep(5 * time.Millisecond) {
		err := p.listen()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.fail(nil, "%s: %v", p.name, err)
			return
		}
	}
}

// ports are others than those of other packages' tests.
var ports = testkit.Ports{Low: 10000, High: 15000}

// freePort is a port that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	return ports.Free(t)
}
