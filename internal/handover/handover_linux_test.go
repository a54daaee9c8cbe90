package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// successorDoes is what this test binary does as a successor.
const successorDoes = "MOONGATE_HANDOVER_TEST"

// TestMain lets the test binary be a successor.
func TestMain(m *testing.M) {
	if does := os.Getenv(successorDoes); does != "" {
		os.Exit(succeed(does))
	}
	os.Exit(m.Run())
}

func succeed(does string) int {
	if does == "does not start" {
		return 70
	}
	p, err := FromEnvironment()
	if err != nil || p == nil || os.Getenv(descriptorVariable) != "" {
		return 70
	}
	switch does {
	case "ends":
		return 3
	case "waits":
		select {}
	case "serves less":
		p.Ready(State{Lacks: map[string]string{"this and that": ""}})
		select {}
	case "becomes ready":
		p.Ready(State{Lacks: map[string]string{"this and that": ""}})
		time.Sleep(50 * time.Millisecond)
		p.Ready(State{})
	case "does not end":
		signal.Ignore(syscall.SIGTERM)
		file := p.Socket("tcp", "a")
		p.Ready(State{})
		<-p.Unwanted()
		select {
		case <-p.Done():
			ln, _ := net.FileListener(file)
			if c, err := ln.Accept(); err == nil {
				io.WriteString(c, "one that is not wanted")
			}
		case <-time.After(time.Second): // as one that shuts down
		}
		return 0
	case "ends when ready":
		p.Ready(State{})
		return 3
	case "is ready":
		p.Ready(State{})
	}
	file := p.Socket("tcp", "a")
	if file == nil || p.Socket("tcp", "b") != nil || p.Socket("udp", "a") != nil || string(p.Secret()) != "secret" {
		return 71
	}
	if p.call(request{Do: "a type of later versions"}).Found {
		return 72
	}
	ln, err := net.FileListener(file)
	if err != nil {
		return 73
	}
	<-p.Done()
	if p.Socket("tcp", "a") != nil {
		return 74
	}
	c, err := ln.Accept()
	if err != nil {
		return 75
	}
	io.WriteString(c, "the successor")
	c.Close()
	return 0
}

func options(t *testing.T, does string) (Options, *net.TCPListener) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	t.Setenv(successorDoes, does)
	tcp := ln.(*net.TCPListener)
	return Options{Path: os.Args[0], Args: os.Args[:1], Secret: []byte("secret"), Accept: func(s State) error {
		for what := range s.Lacks {
			return errors.New(what + " is not served")
		}
		return nil
	}, Timeout: testkit.Patience,
		Socket: func(network, address string) syscall.Conn {
			if network == "tcp" && address == "a" {
				return tcp
			}
			return nil
		}}, tcp
}

// TestHandOver: what clients begin before the successor accepts is not lost.
func TestHandOver(t *testing.T) {
	for _, does := range []string{"is ready", "becomes ready"} {
		t.Run(does, func(t *testing.T) {
			o, ln := options(t, does)
			var sent []syscall.Conn
			o.Sent = func(s syscall.Conn) { sent = append(sent, s) }
			s, err := Start(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.process.Kill()
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			time.Sleep(100 * time.Millisecond) // it may ask for everything, and must not accept
			ln.Close()
			c.SetDeadline(time.Now().Add(50 * time.Millisecond))
			if b, err := io.ReadAll(c); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q, %v from a successor before Begin", b, err)
			}
			s.Begin()
			c.SetDeadline(time.Now().Add(testkit.Patience))
			if b, err := io.ReadAll(c); string(b) != "the successor" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			testkit.Eventually(t, "the successor ends", func() bool { return left(t, does) == "" })
			<-s.gone
			if !slices.Equal(sent, []syscall.Conn{ln}) {
				t.Errorf("sent %v", sent)
			}
		})
	}
}

// TestNotReady: a successor that does not become ready has ended when Start returns, and Start says why.
func TestNotReady(t *testing.T) {
	for _, tc := range []struct{ does, want string }{
		{"ends", "it ended; its log may explain why"},
		{"does not start", "exit status 70"},
		{"waits", "it was not ready within 200ms: it has not read its configuration"},
		{"serves less", "it was not ready within 200ms: this and that is not served"},
	} {
		t.Run(tc.does, func(t *testing.T) {
			o, _ := options(t, tc.does)
			if !strings.Contains(tc.want, "ended") && tc.does != "does not start" {
				o.Timeout = 200 * time.Millisecond
			}
			want := tc.want
			s, err := Start(context.Background(), o)
			for tc.does == "serves less" && o.Timeout < testkit.Patience && !strings.Contains(err.Error(), want) { // it may need longer to say what it serves
				o.Timeout *= 4
				want = strings.Replace(tc.want, "200ms", o.Timeout.String(), 1)
				s, err = Start(context.Background(), o)
			}
			if s != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if children := left(t, tc.does); children != "" {
				t.Errorf("processes %s are left", children)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		o, _ := options(t, "waits")
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if children := left(t, "waits"); children != "" {
			t.Errorf("processes %s are left", children)
		}
	})
	t.Run("not there", func(t *testing.T) {
		o, _ := options(t, "waits")
		o.Path = "/nowhere"
		if _, err := Start(context.Background(), o); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("accepted with less", func(t *testing.T) {
		o, _ := options(t, "serves less")
		requests := 0
		o.Accept = func(State) error { // as when the process comes to lack the same
			if requests++; requests < 2 {
				return errors.New("not yet")
			}
			return nil
		}
		s, err := Start(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Alive() {
			t.Error("it has ended")
		}
		s.End()
		if s.Alive() {
			t.Error("it has not ended")
		}
		if children := left(t, "serves less"); children != "" {
			t.Errorf("processes %s are left", children)
		}
	})
}

// TestNotWanted: a successor that was ended takes nothing from the sockets, although it is alive while the connection to it is closed, and ends.
func TestNotWanted(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			o, ln := options(t, "does not end")
			s, err := Start(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.process.Kill()
			if !known { // as one whose starter was killed before it told
				s = &Successor{gone: s.gone, conn: s.conn}
			}
			s.End()
			if s.Alive() {
				t.Error("it has not ended")
			}
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			mine, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			mine.Close()
			if children := left(t, "does not end"); children != "" {
				t.Errorf("processes %s are left", children)
			}
		})
	}
}

// TestUnwanted: what tells a successor to end is not what tells it to begin.
func TestUnwanted(t *testing.T) {
	own, c := ends(t)
	p := newPredecessor(c)
	defer p.conn.Close()
	s := &Successor{gone: p.unwanted, conn: own}
	s.End()
	<-p.Unwanted()
	if p.Socket("tcp", "a") != nil || p.Secret() != nil {
		t.Error("it was answered")
	}
	select {
	case <-p.Done():
		t.Error("it is its turn")
	case <-time.After(20 * time.Millisecond):
	}
}

// ends are those of a socket pair: of the process that is to be replaced, and of its successor.
func ends(t *testing.T) (predecessors, successors *net.UnixConn) {
	t.Helper()
	own, file, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	theirs, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return own, theirs.(*net.UnixConn)
}

// unsendable is a socket that cannot be handed over.
type unsendable struct{ syscall.RawConn }

func (u unsendable) SyscallConn() (syscall.RawConn, error) { return u, nil }

func (unsendable) Control(f func(uintptr)) error {
	f(1 << 20) // no descriptor
	return nil
}

// TestUnrequested: replies to no request are not in the way of others, and a message without an ID has none.
func TestUnrequested(t *testing.T) {
	own, c := ends(t)
	w := &waiter{messages: make(chan message), gone: make(chan struct{}), stop: make(chan struct{})}
	go w.serve(own, Options{Secret: []byte("x")})
	text := make([]byte, maxMessage)
	for _, message := range []string{`{"do": "a type of later versions"}`, "no JSON", `{"do": "secret", "id": 7}`} {
		if _, err := c.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Read(text); err != nil || !strings.Contains(string(text[:n]), `"id":7`) {
		t.Errorf("%s, %v", text[:n], err)
	}
	p := newPredecessor(c)
	for _, id := range []int{0, 7, 8} {
		if err := send(own, reply{ID: id, Secret: []byte("y")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if got := string(p.Secret()); got != "x" {
			t.Errorf("%q", got)
		}
	}
	own.Close()
	<-p.Done()
}

// TestAwaitsStarter: a successor is not ready before its starter has ended, whose child it is until then.
func TestAwaitsStarter(t *testing.T) {
	w := &waiter{messages: make(chan message), gone: make(chan struct{}), stop: make(chan struct{})}
	starter, ready := make(chan error), make(chan error)
	go func() {
		ready <- new(Successor).await(context.Background(), Options{Accept: func(State) error { return nil }}, w, starter, nil)
	}()
	w.pass(message{pid: os.Getpid()})
	w.pass(message{state: &State{}})
	select {
	case err := <-ready:
		t.Fatalf("%v while the starter runs", err)
	case <-time.After(50 * time.Millisecond):
	}
	starter <- nil
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

// TestSendFails: what cannot be sent does not count as the end of the successor, which is told that there is no socket.
func TestSendFails(t *testing.T) {
	own, c := ends(t)
	w := &waiter{gone: make(chan struct{})}
	go w.serve(own, Options{Secret: []byte("x"), Socket: func(string, string) syscall.Conn { return unsendable{} }, Sent: func(syscall.Conn) { t.Error("sent") }})
	p := newPredecessor(c)
	if p.Socket("tcp", "a") != nil {
		t.Error("a socket")
	}
	select {
	case <-w.gone:
		t.Error("it has ended")
	default:
	}
	if string(p.Secret()) != "x" {
		t.Error("nothing is answered any more")
	}
	own.Close()
	<-p.Done()
}

// left lists the processes of this program that are successors, or start one.
func left(t *testing.T, does string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, path := range all {
		b, _ := os.ReadFile(path) // of one that has ended this moment
		if bytes.Contains(b, []byte(successorDoes+"="+does+"\x00")) && bytes.Contains(b, []byte(descriptorVariable)) {
			of = append(of, path)
		}
	}
	return strings.Join(of, " ")
}

// TestPredecessorGone: the end of a process ends what its successor waits for, whatever that is.
func TestPredecessorGone(t *testing.T) {
	own, c := ends(t)
	defer own.Close()
	p := newPredecessor(c)
	received := make(chan *os.File)
	go func() { received <- p.Socket("tcp", "a") }() // which nobody answers
	time.Sleep(20 * time.Millisecond)
	own.Close()
	if file := <-received; file != nil {
		t.Error("a socket of nobody")
	}
	<-p.Done()
	p.Ready(State{})
	if p.Secret() != nil {
		t.Error("a secret of nobody")
	}
}

// TestFromEnvironment: a variable that something else has set is an error that tells what to do.
func TestFromEnvironment(t *testing.T) {
	for _, text := range []string{"x", "-1", "2", "70000"} {
		t.Setenv(descriptorVariable, text)
		if p, err := FromEnvironment(); p != nil || err == nil || !strings.Contains(err.Error(), "unset it") {
			t.Errorf("%q: %v, %v", text, p, err)
		}
		if _, ok := os.LookupEnv(descriptorVariable); ok {
			t.Errorf("%q is handed down", text)
		}
	}
	if p, err := FromEnvironment(); p != nil || err != nil {
		t.Error(p, err)
	}
}

// TestLargeState: what is told comes whole whatever its size, and what follows it, too.
func TestLargeState(t *testing.T) {
	own, c := ends(t)
	w := &waiter{messages: make(chan message), gone: make(chan struct{}), stop: make(chan struct{})}
	go w.serve(own, Options{})
	p := newPredecessor(c)
	large := State{Lacks: map[string]string{}, Serves: map[string]int{}}
	for i := range 20000 {
		large.Lacks[fmt.Sprintf("HTTPRoute default/r%d", i)] = strings.Repeat("\x00", i%50)
		large.Serves[fmt.Sprint(i)] = i
	}
	for _, want := range []State{large, {}, {Lacks: map[string]string{"a": strings.Repeat("x", maxPart)}}} {
		go p.Ready(want)
		if got := (<-w.messages).state; !maps.Equal(got.Lacks, want.Lacks) || !maps.Equal(got.Serves, want.Serves) {
			t.Errorf("%d and %d of %d and %d", len(got.Lacks), len(got.Serves), len(want.Lacks), len(want.Serves))
		}
	}
	own.Close()
	<-w.gone
	<-p.Done()
}
