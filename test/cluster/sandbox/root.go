package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// writableRoot bounds what a container may write to its root, in bytes; it lives in memory.
const writableRoot = "size=256m,mode=755"

// devices are bound from the node: a container may not make its own without MKNOD.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// readOnlyProc would let root in a container administer the node.
var readOnlyProc = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"}

// mountRoot builds the root filesystem on s.Stage and makes it the root. It runs
// in the container's own mount namespace, so nothing of it is seen outside or
// outlives the container.
func mountRoot(s *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount namespace private: %w", err)
	}
	if err := mount("tmpfs", s.Stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, writableRoot); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.Stage)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, dir := range []string{"dev", "etc", "proc", "sys", "tmp"} {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(s.Stage, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := mountSystem(s); err != nil {
		return err
	}
	for _, m := range s.Mounts {
		if err := bind(root, s.Stage, m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return enterRoot(s)
}

func mountSystem(s *Spec) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	proc, dev := filepath.Join(s.Stage, "proc"), filepath.Join(s.Stage, "dev")
	if err := mount("proc", proc, "proc", flags, ""); err != nil {
		return err
	}
	if err := mount("sysfs", filepath.Join(s.Stage, "sys"), "sysfs", flags|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=64k,mode=755"); err != nil {
		return err
	}
	for _, name := range devices {
		target := filepath.Join(dev, name)
		if err := os.WriteFile(target, nil, 0o666); err != nil {
			return err
		}
		if err := mount("/dev/"+name, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o777); err != nil {
		return err
	}
	return mount("tmpfs", shm, "tmpfs", flags, "size=64m,mode=1777")
}

// bind mounts m below the stage. The mount point is made through root, which
// follows no link out of the container.
func bind(root *os.Root, stage string, m Mount) error {
	inside := strings.TrimPrefix(filepath.Clean(m.Target), "/")
	target := filepath.Join(stage, inside)
	dir := true
	if m.Source != "" {
		info, err := os.Stat(m.Source)
		if err != nil {
			return err
		}
		dir = info.IsDir()
	}
	if err := mountPoint(root, inside, dir); err != nil {
		return err
	}
	if m.Source == "" {
		return mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=777")
	}
	if err := mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	return mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

func mountPoint(root *os.Root, path string, dir bool) error {
	if _, err := root.Stat(path); err == nil {
		return nil // within another mount
	}
	if dir {
		return root.MkdirAll(path, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return root.WriteFile(path, nil, 0o644)
}

func enterRoot(s *Spec) error {
	if err := unix.Chdir(s.Stage); err != nil {
		return err
	}
	// The old root ends up below the new one, at the same place, and is let go.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let the node's root go: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	for _, path := range readOnlyProc {
		err := mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		if err != nil {
			return err
		}
	}
	if s.ReadOnlyRoot {
		return mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
