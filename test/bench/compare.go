//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/response"
)

// expected differences of a contender's responses from the origin's, in canonical form.
var expected = map[string][]string{
	// nginx says this in every response and has no directive against it; it means
	// nothing in HTTP/1.1 (RFC 9112 section 9.3).
	"nginx": {"connection: keep-alive"},
	// As proxies must (RFC 9110 section 7.6.3); gateways need not.
	"caddy": {"via: 1.1 Caddy"},
}

// additions are the lines that a contender adds to requests beyond the three that all add.
var additions = map[string][]string{
	// By it a request that comes back again and again is ended (RFC 8586). An earlier version may lack it.
	"moongate": {"cdn-loop: moongate"},
	baseline:   {"cdn-loop: moongate"},
}

// verify stops the run unless every contender hands the origin's responses on
// unchanged and asks the origin the same as the others do.
func (b *bench) verify(contenders []*contender) error {
	requests := [][]byte{getSmall, getBig, postBody, getOtherHost}
	want, err := exchange(netip.AddrPortFrom(loopback, b.origin.HTTP), false, requests)
	if err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	for _, c := range contenders {
		for _, w := range c.ways() {
			got, err := w.exchange(w.address(c), requests)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, w.name, err)
			}
			for i := range got {
				if diff := response.Diff(want[i], got[i].Without(expected[c.name])); diff != nil {
					return differs(c.name+"'s response (-: only the origin, +: only "+c.name+")", w.name, requests[i], diff)
				}
			}
			if c.name == floor {
				continue // it hands the client's requests on as they are
			}
			if err := verifyForwarded(c, &w); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyLayer4 stops the run unless every contender hands on what the client and the origin say to each other, and nothing else: the origin
// sees the client's own head, and the ends of connections pass.
func (b *bench) verifyLayer4(contenders []*contender) error {
	requests := [][]byte{getSmall, getBig, getHuge, postBody, postHuge, getInspect, postInspect, getClosing}
	want, err := exchange(netip.AddrPortFrom(loopback, b.origin.HTTP), false, requests)
	if err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	for _, c := range contenders {
		for _, w := range ways[:2] {
			got, err := w.exchange(c.layer4(w.secure), requests)
			if err != nil {
				return fmt.Errorf("%s, layer 4, %s: %w", c.name, w.name, err)
			}
			for i := range got {
				if diff := response.Diff(want[i], got[i]); diff != nil {
					return differs(c.name+"'s response through layer 4 (-: only the origin, +: only "+c.name+")", w.name, requests[i], diff)
				}
			}
		}
	}
	return nil
}

// verifyDatagrams stops the run unless datagrams of every contender come back from the origin as they were, also small and large ones.
func (b *bench) verifyDatagrams(contenders []*contender) error {
	for _, c := range contenders {
		if err := echoDatagrams(c.udp); err != nil {
			return fmt.Errorf("%s, UDP: %w", c.name, err)
		}
	}
	return nil
}

func echoDatagrams(addr netip.AddrPort) error {
	c, err := net.DialTimeout("udp", addr.String(), 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for _, sent := range [][]byte{datagram(), []byte("x"), bytes.Repeat(datagram(), 60)} {
		if _, err := c.Write(sent); err != nil {
			return err
		}
		n, err := c.Read(buf)
		if err != nil {
			return fmt.Errorf("no answer to a datagram of %d bytes: %w", len(sent), err)
		}
		if !bytes.Equal(buf[:n], sent) {
			return fmt.Errorf("the answer to a datagram of %d bytes differs (%d bytes)", len(sent), n)
		}
	}
	return nil
}

// way is a protocol by which a contender is asked.
type way struct {
	name     string
	secure   bool
	prior    bool // HTTP/2 without TLS, by prior knowledge
	exchange func(netip.AddrPort, [][]byte) ([]*response.Canonical, error)
}

var ways = []way{
	{"HTTP/1.1", false, false, func(addr netip.AddrPort, requests [][]byte) ([]*response.Canonical, error) {
		return exchange(addr, false, requests)
	}},
	{"HTTP/1.1 over TLS", true, false, func(addr netip.AddrPort, requests [][]byte) ([]*response.Canonical, error) {
		return exchange(addr, true, requests)
	}},
	{"HTTP/2 over TLS", true, false, func(addr netip.AddrPort, requests [][]byte) ([]*response.Canonical, error) {
		return exchangeHTTP2(addr, true, requests)
	}},
	{"HTTP/2 without TLS", false, true, func(addr netip.AddrPort, requests [][]byte) ([]*response.Canonical, error) {
		return exchangeHTTP2(addr, false, requests)
	}},
}

// address is where a contender is asked this way.
func (w *way) address(c *contender) netip.AddrPort {
	if w.prior {
		return c.grpc
	}
	return c.address(w.secure)
}

// ways are those by which the contender can be asked.
func (c *contender) ways() []way {
	if c.name == floor {
		return ways[:1]
	}
	return ways
}

// verifyForwarded checks what the origin was asked: the client's request with the three
// X-Forwarded fields that all contenders add. Each has an X-Request-Id too.
func verifyForwarded(c *contender, w *way) error {
	requests := [][]byte{getInspect, postInspect}
	got, err := w.exchange(w.address(c), requests)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.name, w.name, err)
	}
	for i, request := range requests {
		want := forwarded(request, w.secure)
		asked := slices.DeleteFunc(response.Head(got[i].Body), func(line string) bool {
			return slices.Contains(additions[c.name], line) || strings.HasPrefix(line, "x-request-id: ")
		})
		if diff := response.DiffLines(want, asked); diff != nil {
			return differs(c.name+"'s request to the origin (-: missing, +: too much)", w.name, request, diff)
		}
	}
	return nil
}

// forwarded is the head that the origin should see, as response.Head returns it.
func forwarded(request []byte, secure bool) []string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	head, _, _ := strings.Cut(string(request), "\r\n\r\n")
	return append(response.Head([]byte(head)),
		"x-forwarded-for: 127.0.0.1", "x-forwarded-host: "+apiHost, "x-forwarded-proto: "+scheme)
}

func differs(what, way string, request []byte, diff []string) error {
	line, _, _ := strings.Cut(string(request), "\r\n")
	return fmt.Errorf("%s differs; %s, %s:\n  %s", what, way, line, strings.Join(diff, "\n  "))
}

func (t *traffic) address(c *contender) netip.AddrPort {
	if t.http2 && !t.secure {
		return c.grpc
	}
	if t.exchange == load.Datagrams {
		return c.udp
	}
	if t.variant.Layer4 {
		return c.layer4(t.secure)
	}
	return c.address(t.secure)
}

func (c *contender) address(secure bool) netip.AddrPort {
	if secure {
		return c.tls
	}
	return c.plain
}

// layer4 is where connections are forwarded to the origin's listening socket with TLS or to the one without.
func (c *contender) layer4(secure bool) netip.AddrPort {
	if secure {
		return c.passthrough
	}
	return c.tcp
}

// exchange makes requests one after another on one connection.
func exchange(addr netip.AddrPort, secure bool, requests [][]byte) ([]*response.Canonical, error) {
	c, err := net.DialTimeout("tcp", addr.String(), 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if secure {
		// Self-signed; that it is the right one follows from its name and the loopback.
		c = tls.Client(c, &tls.Config{ServerName: apiHost, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	r := bufio.NewReader(c)
	var answers []*response.Canonical
	for _, request := range requests {
		if _, err := c.Write(request); err != nil {
			return nil, err
		}
		answer, err := response.Read(r)
		if err != nil {
			line, _, _ := strings.Cut(string(request), "\r\n")
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		answers = append(answers, answer)
		if bytes.Equal(request, getClosing) {
			if _, err := r.ReadByte(); err != io.EOF {
				return nil, fmt.Errorf("after the last response: %v, want the end of the connection", err)
			}
		}
	}
	return answers, nil
}

// exchangeHTTP2 makes the same requests by HTTP/2, with the standard library's client. Answers are shown as HTTP/1.1 would have them.
func exchangeHTTP2(addr netip.AddrPort, secure bool, requests [][]byte) ([]*response.Canonical, error) {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr.String())
		},
		TLSClientConfig:    &tls.Config{ServerName: apiHost, InsecureSkipVerify: true},
		Protocols:          new(http.Protocols),
		DisableCompression: true, // else it would ask for it
	}
	t.Protocols.SetHTTP2(secure)
	t.Protocols.SetUnencryptedHTTP2(!secure)
	scheme := "http"
	if secure {
		scheme = "https"
	}
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var answers []*response.Canonical
	for _, request := range requests {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
		if err != nil {
			return nil, err
		}
		r.URL.Scheme, r.URL.Host = scheme, r.Host
		res, err := t.RoundTrip(r.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		answer, err := canonical(res)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.RequestURI, err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func canonical(res *http.Response) (*response.Canonical, error) {
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		return nil, fmt.Errorf("answer by %s", res.Proto)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	c := &response.Canonical{StatusLine: fmt.Sprintf("HTTP/1.1 %d %s", res.StatusCode, http.StatusText(res.StatusCode)), Body: body}
	for name, values := range res.Header {
		for _, value := range values {
			c.Fields = append(c.Fields, strings.ToLower(name)+": "+value)
		}
	}
	slices.Sort(c.Fields)
	return c, nil
}
