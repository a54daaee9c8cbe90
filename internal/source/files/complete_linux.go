package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// complete reports whether a file is not empty and no process has it open for writing. It is also false where that cannot be told.
func complete(path string) bool {
	size, err := lease(path, unix.O_NOFOLLOW)
	return err == nil && size > 0
}

// openForWriting reports whether a process has a file open for writing. It is also false where that cannot be told.
func openForWriting(path string) bool {
	_, err := lease(path, 0)
	return errors.Is(err, unix.EAGAIN)
}

var errNotRegular = errors.New("not a regular file")

// lease takes a read lease of a regular file and gives it back (F_SETLEASE in fcntl(2)), and returns the file's size. The kernel grants the lease only where no process has the file
// open for writing: the error is EAGAIN otherwise, and another one where it grants none at all, as for a file of another user. A process that opens the file
// for writing during the lease waits until it is given back, or fails if it uses O_NONBLOCK.
func lease(path string, flags int) (size int64, err error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // opening a FIFO would unblock its writer
		return 0, errNotRegular
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errNotRegular
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return 0, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return st.Size, err
}
