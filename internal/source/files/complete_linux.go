package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// complete reports whether a file has a content and nobody has it open to write more: the kernel grants a lease for reading only then (fcntl(2)). False may also be that it
// grants none, as for another user's file. Who opens the file meanwhile waits until it is closed here, at once.
func complete(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	return err == nil
}
