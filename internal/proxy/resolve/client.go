package resolve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

const (
	resolvConf = "/etc/resolv.conf"
	// askTimeout is how long a server may take to answer; each server is asked askTimes times.
	askTimeout = 2 * time.Second
	askTimes   = 2
	// udpSize is the largest answer accepted over UDP: it is not fragmented on any path (DNS flag day 2020).
	udpSize = 1232
)

// maxChain is the largest number of aliases of a host (RFC 1034 section 3.6.2), more than any server follows.
const maxChain = 16

// client queries servers.
type client struct {
	servers []netip.AddrPort
	file    string // path of resolv.conf; "" means the system's
	// panicked is Options.Panicked; may be nil.
	panicked func(where string, v any)
	query    func(ctx context.Context, server, host string, kind uint16) (*dns.Msg, error) // nil means the function query
}

// find queries both families at the same time.
func (c *client) find(ctx context.Context, host string, family Family) (found, error) {
	servers, err := c.list()
	if err != nil {
		return found{}, err
	}
	var v4, v6 found
	var err4, err6 error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				if c.panicked != nil {
					c.panicked("resolve", v)
				}
				v6, err6 = found{}, errPanic
			}
		}()
		if family != OnlyIPv4 {
			v6, err6 = c.of(ctx, servers, host, dns.TypeAAAA)
		}
	}()
	if family != OnlyIPv6 {
		v4, err4 = c.of(ctx, servers, host, dns.TypeA)
	}
	<-done
	return family.chosen(v4, v6, err4, err6)
}

func (c *client) list() (servers []string, err error) {
	for _, s := range c.servers {
		servers = append(servers, s.String())
	}
	if servers != nil {
		return servers, nil
	}
	file := c.file
	if file == "" {
		file = resolvConf
	}
	conf, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("the servers of DNS are not known: %w", err)
	}
	for _, s := range conf.Servers {
		servers = append(servers, net.JoinHostPort(s, conf.Port))
	}
	if servers == nil {
		return nil, fmt.Errorf("%s names no DNS server", file)
	}
	return servers, nil
}

// of queries the records of a type until a server has answered.
func (c *client) of(ctx context.Context, servers []string, host string, kind uint16) (found, error) {
	query := query
	if c.query != nil {
		query = c.query
	}
	var last error
	for range askTimes {
		for _, server := range servers {
			if ctx.Err() != nil {
				return found{}, ctx.Err()
			}
			m, err := query(ctx, server, host, kind)
			if err == nil {
				var got found
				if got, err = read(m, host, kind); err == nil || isAbsent(err) {
					return got, err
				}
			}
			last = fmt.Errorf("DNS server %s: %w", server, err)
		}
	}
	return found{}, last
}

// query sends a query to one server, over TCP if its answer is too long for UDP.
func query(ctx context.Context, server, host string, kind uint16) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(host), kind)
	q.SetEdns0(udpSize, false)
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	udp := &dns.Client{Net: "udp", Timeout: askTimeout, UDPSize: udpSize}
	m, err := exchange(ctx, udp, q, server)
	if err != nil || m.Truncated {
		tcp := &dns.Client{Net: "tcp", Timeout: askTimeout}
		if m != nil && m.Truncated || !isTimeout(err) {
			m, err = exchange(ctx, tcp, q, server)
		}
	}
	return m, err
}

// exchange queries over a new connection, and ends when ctx does.
func exchange(ctx context.Context, c *dns.Client, q *dns.Msg, server string) (*dns.Msg, error) {
	conn, err := c.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m, _, err := c.ExchangeWithConnContext(ctx, q, conn)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return m, err
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// read returns the addresses in an answer: those of the host, or of the name that it is an alias of.
func read(m *dns.Msg, host string, kind uint16) (found, error) {
	if len(m.Question) != 1 || m.Question[0].Qtype != kind || dns.CanonicalName(m.Question[0].Name) != dns.CanonicalName(host) || !m.Response {
		return found{}, errors.New("the answer is to another question")
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return found{}, fmt.Errorf("it answers %s", dns.RcodeToString[m.Rcode])
	}
	names, ttl := map[string]bool{dns.CanonicalName(host): true}, uint32(math.MaxInt32)
	for range maxChain { // aliases may be in any order
		before := len(names)
		for _, rr := range m.Answer {
			if alias, is := rr.(*dns.CNAME); is && names[dns.CanonicalName(alias.Hdr.Name)] && alias.Hdr.Class == dns.ClassINET {
				names[dns.CanonicalName(alias.Target)] = true
				ttl = min(ttl, alias.Hdr.Ttl)
			}
		}
		if len(names) == before {
			break
		}
	}
	var f found
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || h.Rrtype != kind || !names[dns.CanonicalName(h.Name)] {
			continue
		}
		var ip net.IP
		switch record := rr.(type) {
		case *dns.A:
			ip = record.A
		case *dns.AAAA:
			ip = record.AAAA
		}
		if a, ok := netip.AddrFromSlice(ip); ok {
			f.addresses = append(f.addresses, a.Unmap())
			ttl = min(ttl, h.Ttl)
		}
	}
	if len(f.addresses) == 0 {
		return f, &absentError{host, m.Rcode == dns.RcodeNameError, negativeTTL(m)}
	}
	f.ttl = time.Duration(ttl) * time.Second
	return f, nil
}

// negativeTTL returns how long it may be cached that a name does not exist (RFC 2308 section 5); 0 if the answer has no
// TTL for that.
func negativeTTL(m *dns.Msg) time.Duration {
	for _, rr := range m.Ns {
		if soa, is := rr.(*dns.SOA); is {
			return time.Duration(min(soa.Hdr.Ttl, soa.Minttl)) * time.Second
		}
	}
	return 0
}
