package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// complete reports whether a file has a content and nobody has it open to write more: the kernel grants a lease for reading only then (fcntl(2)). False may also be that it
// grants none, as for another user's file. Who opens the file for writing in the moment of the lease waits until it is given back, or with O_NONBLOCK is refused.
func complete(path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() { // to open a FIFO would let its writer go on
		return false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size == 0 {
		return false
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}
