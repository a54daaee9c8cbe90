package files

import (
	"os"
	"syscall"
)

// folder identifies a folder, whatever its name.
type folder struct{ device, inode uint64 }

func folderOf(path string) (folder, error) {
	info, err := os.Stat(path)
	if err != nil {
		return folder{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return folder{uint64(st.Dev), st.Ino}, nil // the type of Dev depends on the architecture
}
