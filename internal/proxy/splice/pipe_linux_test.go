package splice

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sockets are two ends of a TCP connection over loopback.
func sockets(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// fill waits for something to fill the pipe with.
func fill(t testing.TB, p *Pipe, c *net.TCPConn, limit int64) (n int, errno syscall.Errno) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, errno = p.Fill(fd, limit)
		return errno != unix.EAGAIN
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, errno
}

func drain(t testing.TB, p *Pipe, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno syscall.Errno
	err = raw.Write(func(fd uintptr) bool {
		for errno = 0; errno == 0 && p.Held() > 0; {
			errno = p.Drain(fd)
		}
		return errno != unix.EAGAIN
	})
	if err != nil || errno != 0 {
		t.Fatal(err, errno)
	}
}

// TestPipe moves bytes through a pipe: no more than asked for, in their order, up to the end of the stream.
func TestPipe(t *testing.T) {
	from, source := sockets(t)
	to, sink := sockets(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	go func() {
		source.Write(want)
		source.CloseWrite()
	}()
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(sink)
		got <- b
	}()
	p := takeSmall()
	for limit := int64(1); ; limit = limit*3 + 1 {
		n, errno := fill(t, p, from, limit)
		if errno != 0 {
			t.Fatal(errno)
		}
		if n == 0 {
			break
		}
		if int64(n) > limit || n > smallPipe || p.Held() != n {
			t.Fatalf("%d bytes moved, %d held; at most %d were asked for", n, p.Held(), limit)
		}
		drain(t, p, to)
	}
	to.CloseWrite()
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("%d bytes came, equal %v; want %d", len(b), bytes.Equal(b, want), len(want))
	}
	Give(p)
}

// TestGiveFull: a pipe that holds another's bytes is closed at once, and not lent again.
func TestGiveFull(t *testing.T) {
	from, source := sockets(t)
	io.WriteString(source, "secret")
	p := takeSmall()
	if n, errno := fill(t, p, from, 100); n != 6 || errno != 0 {
		t.Fatal(n, errno)
	}
	Give(p)
	if _, err := unix.FcntlInt(uintptr(p.fds[0]), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the pipe is still open: %v", err)
	}
	for range 10 {
		if q := takeSmall(); q == p || q.Held() != 0 {
			t.Fatal("a pipe with bytes in it was lent")
		}
	}
}

// TestNoSplice: where the kernel refuses, no pipe is lent any more.
func TestNoSplice(t *testing.T) {
	p := takeSmall()
	defer refused.Store(false)
	dir, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_DIRECTORY, 0) // which has no bytes to move
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if _, errno := p.Fill(uintptr(dir), 10); errno != unix.EINVAL {
		t.Fatalf("%v, want EINVAL", errno)
	}
	if q := takeSmall(); q != nil {
		t.Error("a pipe is lent though the system does not splice")
	}
}

// TestLargePipes: a large pipe takes at once what a tunnel moves; there are only so many, and others then get what there is besides.
func TestLargePipes(t *testing.T) {
	from, source := sockets(t)
	to, sink := sockets(t)
	var all []*Pipe
	for len(all) == 0 || all[len(all)-1].large {
		p := Take()
		if p == nil {
			t.Fatal("the system does not splice")
		}
		if all = append(all, p); len(all) > mostLargePipes+1 {
			t.Fatalf("%d large pipes", len(all))
		}
	}
	if len(all) != mostLargePipes+1 {
		t.Errorf("%d large pipes, want %d", len(all)-1, mostLargePipes)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	go func() {
		source.Write(want)
		source.CloseWrite()
	}()
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(sink)
		got <- b
	}()
	most := 0
	for {
		n, errno := fill(t, all[0], from, Most)
		if errno != 0 {
			t.Fatal(errno)
		}
		if n == 0 {
			break
		}
		most = max(most, n)
		drain(t, all[0], to)
	}
	to.CloseWrite()
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("%d bytes came, want %d as they were", len(b), len(want))
	}
	if most > Most {
		t.Errorf("%d bytes at once, want %d at most", most, Most)
	}
	// One that holds bytes is closed, and makes room for another.
	left, of := sockets(t)
	io.WriteString(of, "left")
	if n, errno := fill(t, all[1], left, Most); n == 0 {
		t.Fatal(errno)
	}
	before := large.Load()
	Give(all[1])
	if now := large.Load(); now != before-1 {
		t.Errorf("%d large pipes after one was closed, before %d", now, before)
	}
	for i, p := range all {
		if i != 1 {
			Give(p)
		}
	}
}

// TestLimit: there are no more pipes than allowed, of any size, and one that is closed makes room for another.
func TestLimit(t *testing.T) {
	from, source := sockets(t)
	most := int(open.Load()) + mostLargePipes + 5 // others may not have been given back
	Limit(most)
	defer Limit(MostPipes)
	var taken []*Pipe
	for p := Take(); p != nil; p = Take() {
		if taken = append(taken, p); len(taken) > most {
			t.Fatalf("%d pipes, want %d at most", len(taken), most)
		}
	}
	if len(taken) == 0 {
		t.Fatal("no pipe is lent")
	}
	io.WriteString(source, "left")
	if n, errno := fill(t, taken[0], from, Most); n == 0 {
		t.Fatal(errno)
	}
	Give(taken[0])
	if taken[0] = Take(); taken[0] == nil {
		t.Error("no pipe is lent though one was closed")
	}
	for _, p := range taken {
		if p != nil {
			Give(p)
		}
	}
}
