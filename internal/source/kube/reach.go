package kube

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Whether the API server is unavailable is not decided by the requests for one kind: those may get no answer while all others do, for
// example because a load balancer breaks connections on which a large list is sent. They are only a reason to probe.
const (
	// probePause is the minimum interval of probes.
	probePause = time.Second
	// probeTimeout is how long the answer of a probe may take.
	probeTimeout = 5 * time.Second
)

// probe finds out whether the API server is unavailable whenever a request got no answer, until ctx ends. While it is unavailable it
// is probed again and again: there may be no other request.
func (s *Source) probe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.doubt:
		}
		for answered := false; !answered; {
			begun := time.Now()
			limited, cancel := context.WithTimeout(ctx, probeTimeout)
			_, err := s.clients[clientKey{schema.GroupVersion{Version: "v1"}, false}].Get().MaxRetries(0).AbsPath("/version").DoRaw(limited)
			cancel()
			if ctx.Err() != nil {
				return
			}
			s.mu.Lock()
			answered = s.noteProbe(err, begun)
			s.mu.Unlock()
			if !sleep(ctx, probePause) {
				return
			}
			s.mu.Lock()
			answered = answered || !s.answeredAt.Before(begun) // by another request: a proxy in between may drop those for /version
			s.mu.Unlock()
		}
	}
}

// noteProbe records the result of a probe, logs once, not for each kind, that the API server is unavailable, and reports whether it is
// available. The caller must hold s.mu.
func (s *Source) noteProbe(err error, begun time.Time) (answered bool) {
	if !reached(err) && s.answeredAt.Before(begun) {
		if say, _ := s.reach.next(err, begun); say {
			s.log.Warn("the API server does not answer; the known objects are kept, trying again", "error", err)
		}
		return false
	}
	s.noteAnswer()
	return true
}

// noteReach records whether a request was answered. The caller must hold s.mu.
func (s *Source) noteReach(err error) {
	if reached(err) {
		s.noteAnswer()
		return
	}
	select {
	case s.doubt <- struct{}{}:
	default:
	}
}

// noteAnswer records that the API server is available. The caller must hold s.mu.
func (s *Source) noteAnswer() {
	s.answeredAt = time.Now()
	if s.reach.text != "" {
		s.reachedSince = s.answeredAt
	}
	if _, over := s.reach.next(nil, s.answeredAt); over {
		s.log.Info("the API server answers again")
	}
}

// reached reports whether an API server has answered, even with an error.
func reached(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}
