package splice

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRefused says that nothing was moved and nothing ever will be: read instead.
var ErrRefused = errors.New("splice: the system does not splice")

// Reader fills pipes from a socket. It is for one goroutine at a time; Init comes first.
type Reader struct {
	raw   syscall.RawConn
	step  func(fd uintptr) bool
	look  func(fd uintptr)
	pipe  *Pipe
	limit int64
	n     int
	errno syscall.Errno
}

// Init makes r ready to fill pipes from a socket.
func (r *Reader) Init(socket syscall.RawConn) {
	r.raw = socket
	if r.look != nil {
		return
	}
	r.look = func(fd uintptr) { r.n, r.errno = r.pipe.Fill(fd, r.limit) }
	r.step = func(fd uintptr) bool {
		r.look(fd)
		return r.errno != unix.EAGAIN
	}
}

// Fill waits for bytes and moves up to limit of them into the pipe, which is empty. io.EOF is the end of the stream.
func (r *Reader) Fill(p *Pipe, limit int64) (int, error) {
	r.pipe, r.limit, r.n, r.errno = p, limit, 0, 0
	err := r.raw.Read(r.step)
	r.pipe = nil
	switch {
	case err != nil:
		return 0, err
	case r.errno == unix.EINVAL, r.errno == unix.ENOSYS, r.errno == unix.EPERM:
		return 0, ErrRefused
	case r.errno != 0:
		return 0, r.errno
	case r.n == 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// FillNow is Fill of what has come already, without waiting; 0 where nothing has. failed is that it may have taken the socket's error: a read then sees the
// end of the stream instead.
func (r *Reader) FillNow(p *Pipe, limit int64) (n int, failed bool) {
	r.pipe, r.limit, r.n, r.errno = p, limit, 0, 0
	err := r.raw.Control(r.look)
	r.pipe = nil
	if err != nil || r.errno != 0 {
		return 0, err != nil || r.errno != unix.EAGAIN
	}
	return r.n, false
}

// Writer empties pipes into a socket. It is for one goroutine at a time; Init comes first.
type Writer struct {
	raw   syscall.RawConn
	step  func(fd uintptr) bool
	pipe  *Pipe
	errno syscall.Errno
}

// Init makes w ready to empty pipes into a socket.
func (w *Writer) Init(socket syscall.RawConn) {
	w.raw = socket
	if w.step != nil {
		return
	}
	w.step = func(fd uintptr) bool {
		for w.errno = 0; w.errno == 0 && w.pipe.Held() > 0; { // up to EAGAIN, or the poller would not tell of more room
			w.errno = w.pipe.Drain(fd)
		}
		return w.errno != unix.EAGAIN
	}
}

// Drain moves all that the pipe holds to the socket, unless the write deadline comes first.
func (w *Writer) Drain(p *Pipe) error {
	w.pipe = p
	err := w.raw.Write(w.step)
	w.pipe = nil
	if err == nil && w.errno != 0 {
		err = w.errno
	}
	return err
}
