package files

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// complete reports whether a file is not empty and no process has it open for writing. It also returns false if that is not known.
func complete(path string) bool {
	size, err := lease(path, unix.O_NOFOLLOW)
	return err == nil && size > 0
}

// openForWriting reports whether a process has a file open for writing. It also returns false if that is not known.
func openForWriting(path string) bool {
	_, err := lease(path, 0)
	return errors.Is(err, unix.EAGAIN)
}

var errNotRegular, errNotTold = errors.New("not a regular file"), errors.New("the file system does not report it")

// remote are file systems on which a lease that cannot be granted gives the same error as an open file.
var remote = []int64{unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC}

// lease takes a read lease on a regular file and releases it (F_SETLEASE in fcntl(2)), and returns the file's size. The kernel
// grants the lease only if no process has the file open for writing: otherwise the error is EAGAIN. It is another error if no lease
// is possible, for example on a file of another user. A process that opens the file for writing during the lease waits until it is
// released, or fails if it uses O_NONBLOCK.
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
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || slices.Contains(remote, int64(fs.Type)) {
		return 0, errNotTold
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return 0, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return st.Size, err
}
