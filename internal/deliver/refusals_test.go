package deliver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
)

// TestRefusals: of each caller a refusal is said once, again after a while, and again once it was served meanwhile; and
// however many callers there are, what is remembered is bounded.
func TestRefusals(t *testing.T) {
	var f refusals
	start := time.Now()
	for _, c := range []struct {
		caller string
		code   codes.Code
		after  time.Duration
		want   bool
	}{
		{"a", codes.PermissionDenied, 0, true},
		{"a", codes.PermissionDenied, time.Second, false},
		{"a", codes.Unauthenticated, time.Second, true},
		{"b", codes.PermissionDenied, time.Second, true},
		{"a", codes.PermissionDenied, repeatRefusal - 1, false},
		{"a", codes.PermissionDenied, repeatRefusal, true},
	} {
		if got := f.news(c.caller, c.code, start.Add(c.after)); got != c.want {
			t.Errorf("%s, %s, after %s: %v", c.caller, c.code, c.after, got)
		}
	}
	f.forget("a")
	if !f.news("a", codes.Unauthenticated, start.Add(repeatRefusal)) || f.news("b", codes.PermissionDenied, start.Add(2*time.Second)) {
		t.Error("one that was served is not said again, or another is")
	}
	for i := range 2 * maxRefusals {
		f.news(fmt.Sprint(i), codes.Unauthenticated, start.Add(repeatRefusal))
	}
	if len(f.loggedAt) > maxRefusals {
		t.Errorf("%d remembered", len(f.loggedAt))
	}
	if !f.news("z", codes.Unauthenticated, start.Add(2*repeatRefusal)) {
		t.Error("what is long over makes no room")
	}
}

// callFrom is a stream of which nothing but its caller is ever asked.
type callFrom struct {
	grpc.ServerStream
	ctx context.Context
}

func (c callFrom) Context() context.Context { return c.ctx }

// TestRefusedOnceInLog checks that a proxy whose Gateway is gone, and which asks again until its pod ends, is one line.
func TestRefusedOnceInLog(t *testing.T) {
	var log bytes.Buffer
	r := NewRemote(RemoteOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Authenticate: func(context.Context) (Caller, error) {
			return Caller{}, status.Error(codes.PermissionDenied, "of no Gateway")
		}})
	r.Apply(&Change{Config: &config.Update{}, Complete: true})
	r.Lead("epoch", &Withheld{})
	for port := range 5 {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 4000 + port}})
		err := (&service{r: r}).Stream(&grpc.GenericServerStream[wire.FromProxy, wire.ToProxy]{ServerStream: callFrom{ctx: ctx}})
		if status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "is refused"); n != 1 || !strings.Contains(log.String(), "10.0.0.7") {
		t.Errorf("%d lines: %s", n, &log)
	}
}
