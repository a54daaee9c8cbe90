//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/test/bench/response"
)

// expected differences of a contender's responses from the origin's, in canonical form.
var expected = map[string][]string{
	// nginx says this in every response and has no directive against it; it means
	// nothing in HTTP/1.1 (RFC 9112 section 9.3).
	"nginx": {"connection: keep-alive"},
}

// verify stops the run unless every contender hands the origin's responses on
// unchanged and asks the origin the same as the others do.
func (b *bench) verify(contenders []*contender) error {
	requests := [][]byte{getSmall, getBig, postBody, getOtherHost}
	want, err := exchange(b.origin, false, requests)
	if err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	for _, c := range contenders {
		for _, secure := range []bool{false, true} {
			got, err := exchange(c.address(secure), secure, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			for i := range got {
				if diff := response.Diff(want[i], got[i].Without(expected[c.name])); diff != nil {
					return differs(c.name+"'s response (-: only the origin, +: only "+c.name+")", secure, requests[i], diff)
				}
			}
			if err := verifyForwarded(c, secure); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyForwarded checks what the origin was asked: the client's request with the three
// X-Forwarded fields that all contenders add.
func verifyForwarded(c *contender, secure bool) error {
	requests := [][]byte{getInspect, postInspect}
	got, err := exchange(c.address(secure), secure, requests)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	for i, request := range requests {
		want := forwarded(request, secure)
		if diff := response.DiffLines(want, response.Head(got[i].Body)); diff != nil {
			return differs(c.name+"'s request to the origin (-: missing, +: too much)", secure, request, diff)
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

func differs(what string, secure bool, request []byte, diff []string) error {
	line, _, _ := strings.Cut(string(request), "\r\n")
	return fmt.Errorf("%s differs; TLS %v, %s:\n  %s", what, secure, line, strings.Join(diff, "\n  "))
}

func (c *contender) address(secure bool) netip.AddrPort {
	if secure {
		return c.tls
	}
	return c.plain
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
	}
	return answers, nil
}
