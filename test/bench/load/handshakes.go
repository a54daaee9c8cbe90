//go:build linux

package load

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// runHandshakes opens a TLS connection for every request, a goroutine for each
// connection in flight: crypto/tls cannot suspend a handshake, so the event loop
// cannot carry it.
func runHandshakes(spec *Spec) (*Result, error) {
	s := &shaker{spec: spec, config: tlsConfig(spec.ServerName)}
	var workers sync.WaitGroup
	for range spec.Connections {
		workers.Go(s.work)
	}
	result, err := s.measure()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	workers.Wait()
	if s.fatal != nil {
		return nil, s.fatal
	}
	return result, err
}

// measure holds the workers still while it reads the clocks, so that the count
// belongs to them.
func (s *shaker) measure() (*Result, error) {
	time.Sleep(s.spec.Warmup)
	s.mu.Lock()
	m, err := begin(s.spec)
	s.requests, s.tally = 0, tally{}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	time.Sleep(s.spec.Window)
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.end(s.requests, &s.tally)
}

type shaker struct {
	spec   *Spec
	config *tls.Config

	mu       sync.Mutex // guards what follows
	requests int
	stopped  bool
	fatal    error
	tally
}

func (s *shaker) work() {
	var buf [32 << 10]byte
	for {
		start := time.Now()
		err := s.exchange(buf[:])
		s.mu.Lock()
		if err != nil {
			if fatal := s.fail(err); fatal != nil {
				s.fatal, s.stopped = fatal, true
			}
		} else {
			s.requests++
			s.latency.Add(time.Since(start))
		}
		stopped := s.stopped
		s.mu.Unlock()
		if stopped {
			return
		}
	}
}

// exchange is one connection: handshake, request, response, the peer's end.
func (s *shaker) exchange(buf []byte) error {
	raw, err := net.DialTimeout("tcp", s.spec.Address.String(), 5*time.Second)
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	c := tls.Client(raw, s.config)
	if err := c.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	if err := checkTLS(c); err != nil {
		return err
	}
	if _, err := c.Write(s.spec.Request); err != nil {
		return err
	}
	got, total := 0, 0
	for total == 0 || got < total {
		n, err := c.Read(buf[got:])
		got += n
		if total == 0 {
			if total, err = responseSize(buf[:got], s.spec.BodySize, err); err != nil {
				return err
			}
		} else if err != nil && got < total {
			return err
		}
	}
	// The proxy closes first, as it does for the plain workload.
	if n, err := c.Read(buf[:1]); n != 0 || err != io.EOF {
		return fmt.Errorf("after the response: %d bytes and %v, want the end of the connection", n, err)
	}
	return nil
}
