package http2

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryWriter returns a function that writes to the socket without waiting, and returns how much the socket has taken.
// Its caller has a stream of its own with its own deadline. It returns nil on systems without such writes.
func tryWriter(raw syscall.RawConn) func([]byte) (int, error) {
	var b []byte
	var n uintptr
	var errno unix.Errno
	write := func(fd uintptr) bool {
		// The call is raw: the socket does not block, so the scheduler need not know of it.
		n, _, errno = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		return true
	}
	return func(p []byte) (int, error) {
		b = p
		err := raw.Write(write)
		b = nil
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // from an earlier write that had to wait
			return 0, nil
		case err != nil:
			return 0, err
		case errno == unix.EAGAIN:
			return 0, nil
		case errno != 0:
			return 0, errno
		}
		return int(n), nil
	}
}
