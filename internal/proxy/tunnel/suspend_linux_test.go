package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// suspended returns the far ends of a tunnel that is suspended.
func suspended(t *testing.T) (client, backend *net.TCPConn, tunnel *Tunnel, end chan End) {
	t.Helper()
	client, backend, tunnel, end = joined(t, true)
	suspend(t, tunnel)
	return client, backend, tunnel, end
}

func suspend(t *testing.T, tunnel *Tunnel) {
	t.Helper()
	before := suspensions.Load()
	testkit.Eventually(t, "the tunnel to be suspended", func() bool {
		tunnel.Suspend()
		return suspensions.Load() > before
	})
}

// ended returns how a tunnel ends.
func ended(t *testing.T, end chan End) End {
	t.Helper()
	select {
	case e := <-end:
		return e
	case <-time.After(testkit.Patience):
		t.Fatal("the tunnel does not end")
		return End{}
	}
}

// TestSuspend: a tunnel that is suspended goes on with what comes from either side, before its first message and behind others, and counts all bytes.
func TestSuspend(t *testing.T) {
	client, backend, tunnel, end := suspended(t)
	const rounds = 4
	for i := range rounds {
		from, to := client, backend
		if i%2 == 1 {
			from, to = backend, client
		}
		io.WriteString(from, "woken")
		got := make([]byte, len("woken"))
		if _, err := io.ReadFull(to, got); string(got) != "woken" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		if i == 1 {
			quiet(t, client, backend)
		}
		suspend(t, tunnel)
	}
	client.CloseWrite()
	if b, err := io.ReadAll(backend); len(b) > 0 || err != nil {
		t.Errorf("the backend got %q, %v", b, err)
	}
	io.WriteString(backend, "last")
	backend.CloseWrite()
	if b, err := io.ReadAll(client); string(b) != "last" || err != nil {
		t.Errorf("the client got %q, %v", b, err)
	}
	each := int64(rounds/2*len("woken") + 2*len("message"))
	if e := ended(t, end); e.Err != nil || e.ToBackend != each || e.ToClient != each+int64(len("last")) {
		t.Errorf("ended by %+v, want %d bytes each way", e, each)
	}
}

// TestSuspendedEnds: a tunnel that is suspended ends as another does.
func TestSuspendedEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		ends   func(client, backend *net.TCPConn, tunnel *Tunnel)
		failed Side
		err    error
	}{
		"interrupted":      {func(_, _ *net.TCPConn, tunnel *Tunnel) { tunnel.Interrupt() }, Neither, os.ErrDeadlineExceeded},
		"reset by client":  {func(client, _ *net.TCPConn, _ *Tunnel) { client.SetLinger(0); client.Close() }, Client, syscall.ECONNRESET},
		"reset by backend": {func(_, backend *net.TCPConn, _ *Tunnel) { backend.SetLinger(0); backend.Close() }, Backend, syscall.ECONNRESET},
		"closed by both":   {func(client, backend *net.TCPConn, _ *Tunnel) { client.Close(); backend.Close() }, Neither, nil},
		"cut": { // as who closes the client's connection does; which direction notices first is open
			func(_, _ *net.TCPConn, tunnel *Tunnel) { tunnel.Client.(*socket).Close(); tunnel.Interrupt() }, Neither, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, backend, tunnel, end := suspended(t)
			tc.ends(client, backend, tunnel)
			e := ended(t, end)
			if name == "cut" {
				if e.Err == nil {
					t.Error("it has ended well")
				}
				return
			}
			if !errors.Is(e.Err, tc.err) || tc.failed != Neither && e.Failed != tc.failed {
				t.Errorf("ended by %+v, want %v of %v", e, tc.err, tc.failed)
			}
		})
	}
}

// TestInterruptBeforeAwait: a tunnel that was interrupted after it was suspended is not awaited.
func TestInterruptBeforeAwait(t *testing.T) {
	near, _ := pair(t, true)
	far, _ := pair(t, true)
	tunnel := &Tunnel{Client: near, Backend: far, HangUps: &HangUps{}, Suspends: true, Moved: func(Side, bool) {}, Panicked: func(any) {}}
	defer tunnel.HangUps.Close()
	result := make(chan End, 1)
	go func() { result <- tunnel.Run() }()
	testkit.Eventually(t, "the tunnel to be suspended", func() bool { tunnel.Suspend(); return len(result) > 0 })
	if e := <-result; !e.Suspended {
		t.Fatalf("ended by %+v", e)
	}
	tunnel.Interrupt()
	if tunnel.Await(func() { t.Error("woken") }) {
		t.Error("it is awaited")
	}
	if e := tunnel.Run(); !errors.Is(e.Err, os.ErrDeadlineExceeded) {
		t.Errorf("ended by %+v", e)
	}
}

// TestBarrierWithoutOneSide: a direction that fails does not leave the other waiting for it.
func TestBarrierWithoutOneSide(t *testing.T) {
	near, _ := pair(t, true)
	far, _ := pair(t, true)
	tunnel := &Tunnel{Client: near, Backend: far, barrier: &barrier{passed: make(chan struct{})}}
	agreed := make(chan bool, 1)
	go func() { agreed <- tunnel.agree(false) }()
	tunnel.fail(Client, errPanicked)
	select {
	case suspended := <-agreed:
		if suspended {
			t.Error("suspended, though a direction has failed")
		}
	case <-time.After(testkit.Patience):
		t.Fatal("the other direction waits")
	}
	if tunnel.agree(false) {
		t.Error("a barrier that was cancelled has suspended the tunnel")
	}
}
