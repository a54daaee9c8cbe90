package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// complete reports whether a file is not empty and no process has it open for writing: only then does the kernel grant a read lease (F_SETLEASE in fcntl(2)). It is also false
// where the kernel grants none, as for a file of another user. A process that opens the file for writing during the lease waits until it is released, or fails if it uses O_NONBLOCK.
func complete(path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() { // opening a FIFO would unblock its writer
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
