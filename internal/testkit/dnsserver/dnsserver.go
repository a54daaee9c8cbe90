// Package dnsserver is a DNS server for tests, with records that tests can change.
package dnsserver

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// Server answers over UDP and TCP.
type Server struct {
	addr netip.AddrPort

	mu      sync.Mutex
	records map[string][]dns.RR // by name
	failing map[string]int      // rcodes by name
	asked   map[string]int      // questions by name and type
	silent  bool
	narrow  bool
}

// Start starts a server on a loopback address until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{records: map[string][]dns.RR{}, failing: map[string]int{}, asked: map[string]int{}}
	// Both sockets must have the same port, which another process may use for TCP.
	for try := 0; ; try++ {
		u, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", u.LocalAddr().String())
		if err != nil {
			u.Close()
			if try == 10 {
				t.Fatal(err)
			}
			continue
		}
		s.addr = u.LocalAddr().(*net.UDPAddr).AddrPort()
		for _, server := range []*dns.Server{{PacketConn: u, Handler: s}, {Listener: l, Handler: s}} {
			started := make(chan struct{})
			server.NotifyStartedFunc = func() { close(started) }
			done := make(chan struct{})
			go func() {
				defer close(done)
				server.ActivateAndServe() //nolint:errcheck // it ends with the test
			}()
			<-started
			t.Cleanup(func() {
				server.Shutdown() //nolint:errcheck // it ends with the test
				<-done
			})
		}
		return s
	}
}

// Addr returns the address of the server.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Set replaces the records of a name, such as "a.example.com. 60 IN A 192.0.2.1"; without records the name does not exist.
func (s *Server) Set(t testing.TB, name string, records ...string) {
	t.Helper()
	var list []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failing, dns.CanonicalName(name))
	s.records[dns.CanonicalName(name)] = list
}

// Fail makes the server answer queries for a name with a code such as dns.RcodeServerFailure, until Set is called for it.
func (s *Server) Fail(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[dns.CanonicalName(name)] = rcode
}

// Silence makes the server answer nothing, or answer again.
func (s *Server) Silence(silent bool) { s.mu.Lock(); defer s.mu.Unlock(); s.silent = silent }

// Narrow makes the server answer over UDP only that the response is truncated.
func (s *Server) Narrow(narrow bool) { s.mu.Lock(); defer s.mu.Unlock(); s.narrow = narrow }

// Asked returns the number of queries for a name, of any type.
func (s *Server) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dns.CanonicalName(name)]
}

// ServeDNS answers one query.
func (s *Server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.Question) != 1 {
		return
	}
	name, kind := dns.CanonicalName(q.Question[0].Name), q.Question[0].Qtype
	s.asked[name]++
	if s.silent {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	records, exists := s.records[name]
	switch _, udp := w.RemoteAddr().(*net.UDPAddr); {
	case udp && s.narrow:
		m.Truncated = true
	case s.failing[name] != 0:
		m.Rcode = s.failing[name]
	case !exists || len(records) == 0:
		m.Rcode = dns.RcodeNameError
		soa, err := dns.NewRR("example.com. 1 IN SOA ns.example.com. a.example.com. 1 1 1 1 1")
		if err != nil {
			return
		}
		m.Ns = []dns.RR{soa}
	default:
		for _, rr := range records {
			if t := rr.Header().Rrtype; t == kind || t == dns.TypeCNAME || !strings.EqualFold(rr.Header().Name, name) && t == kind {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	w.WriteMsg(m) //nolint:errcheck // the client retries
}
