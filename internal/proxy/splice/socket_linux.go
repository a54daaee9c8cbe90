package splice

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Reader fills pipes from a socket. It belongs to one goroutine at a time. Init must be called first.
type Reader struct {
	raw   syscall.RawConn
	look  func(fd uintptr)
	pipe  *Pipe
	limit int64
	n     int
	errno syscall.Errno
}

// Init prepares r to fill pipes from a socket.
func (r *Reader) Init(socket syscall.RawConn) {
	r.raw = socket
	if r.look != nil {
		return
	}
	r.look = func(fd uintptr) { r.n, r.errno = r.pipe.Fill(fd, r.limit) }
}

// FillNow moves up to limit bytes that have already arrived into the pipe, which must be empty, without waiting. It
// returns 0 if nothing has arrived. failed means that it may have taken the socket's error: a read then returns the end
// of the stream instead.
func (r *Reader) FillNow(p *Pipe, limit int64) (n int, failed bool) {
	r.pipe, r.limit, r.n, r.errno = p, limit, 0, 0
	err := r.raw.Control(r.look)
	r.pipe = nil
	if err != nil || r.errno != 0 {
		return 0, err != nil || r.errno != unix.EAGAIN
	}
	return r.n, false
}

// Writer empties pipes into a socket. It belongs to one goroutine at a time. Init must be called first.
type Writer struct {
	raw   syscall.RawConn
	step  func(fd uintptr) bool
	pipe  *Pipe
	errno syscall.Errno
}

// Init prepares w to empty pipes into a socket.
func (w *Writer) Init(socket syscall.RawConn) {
	w.raw = socket
	if w.step != nil {
		return
	}
	w.step = func(fd uintptr) bool {
		for w.errno = 0; w.errno == 0 && w.pipe.Held() > 0; { // up to EAGAIN, because otherwise the poller would not report more room
			w.errno = w.pipe.Drain(fd)
		}
		return w.errno != unix.EAGAIN
	}
}

// Drain moves the whole contents of the pipe to the socket, unless the write deadline passes first.
func (w *Writer) Drain(p *Pipe) error {
	w.pipe = p
	err := w.raw.Write(w.step)
	w.pipe = nil
	if err == nil && w.errno != 0 {
		err = w.errno
	}
	return err
}
