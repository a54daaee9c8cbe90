package reconcile_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// committed receives a generation, and returns its end.
func committed(t *testing.T, s wire.Delivery_StreamClient) *wire.Commit {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if commit := m.GetCommit(); commit != nil {
			return commit
		}
	}
}

// TestLongWords: whatever a proxy says, a line of the log is short.
func TestLongWords(t *testing.T) {
	log := &testkit.Log{}
	c, _ := started(t, forever, func(o *reconcile.ClusterOptions) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	long := strings.Repeat("x", 100_000)
	token := identityToken("n/gw", "talker")
	hello := func(gateway string) *wire.FromProxy {
		return &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: gateway, Version: long}}}
	}
	if _, err := c.ask(t, token, hello("n/"+long)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("of another Gateway: %v", err)
	}
	for _, ack := range []*wire.Ack{{Epoch: "first", Generation: 1, Error: long}, {Epoch: long, Generation: 1 << 60}} {
		s := c.dial(t, token)
		if err := s.Send(hello("n/gw")); err != nil {
			t.Fatal(err)
		}
		committed(t, s)
		if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: ack}}); err != nil {
			t.Fatal(err)
		}
		want := "refuses its configuration"
		if ack.Error == "" {
			want = "was never sent"
		}
		testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), want) })
	}
	for line := range strings.SplitSeq(log.String(), "\n") {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes: %.300s", len(line), line)
		}
	}
	for _, p := range c.proxies("n/gw") {
		if len(p.Version) > 600 {
			t.Errorf("a version of %d bytes", len(p.Version))
		}
	}
}

// TestManyStreams: a pod that begins stream after stream is refused, and others are not concerned.
func TestManyStreams(t *testing.T) {
	c, p := started(t, forever)
	hello := &wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}
	var err error
	// More than ever fits into the burst and the seconds that a slow machine takes for this.
	for n := 0; n < 1000 && err == nil; n++ {
		_, err = c.ask(t, identityToken("n/gw", "restless"), hello)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it ended with %v", err)
	}
	if _, err := c.ask(t, identityToken("n/gw", "calm"), hello); err != nil {
		t.Errorf("another pod is refused: %v", err)
	}
	if !p.Ready() || !c.acked("n/gw", "pod-0") {
		t.Error("another proxy is concerned")
	}
}

// TestManyWords: an Ack that rejects one thing a hundred thousand times, in other words than the last, writes few lines.
func TestManyWords(t *testing.T) {
	log := &testkit.Log{}
	c, _ := started(t, forever, func(o *reconcile.ClusterOptions) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	s := c.dial(t, identityToken("n/gw", "talker"))
	if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Hello{Hello: &wire.Hello{Gateway: "n/gw"}}}); err != nil {
		t.Fatal(err)
	}
	commit := committed(t, s)
	for _, word := range []string{"first", "last"} {
		ack := &wire.Ack{Epoch: "first", Generation: commit.Generation}
		for range 100_000 { // of a kind that is not known here
			ack.Rejected = append(ack.Rejected, &wire.Fault{Message: word})
		}
		if err := s.Send(&wire.FromProxy{Message: &wire.FromProxy_Ack{Ack: ack}}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(log.String(), "error="+word) })
	}
	if n := strings.Count(log.String(), "cannot carry out"); n != 2 {
		t.Errorf("%d lines", n)
	}
}
