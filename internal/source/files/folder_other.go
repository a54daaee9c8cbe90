//go:build !linux

package files

import "path/filepath"

// folder identifies a folder, whatever its name.
type folder string

func folderOf(path string) (folder, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	return folder(real), err
}
