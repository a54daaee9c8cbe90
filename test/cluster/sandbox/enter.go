package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Enter becomes the program of the Spec on specFD, and returns only on failure,
// which it also writes to resultFD. Namespaces, credentials and filters are
// properties of the calling thread, and it is this thread that survives the exec.
func Enter() error {
	runtime.LockOSThread()
	unix.CloseOnExec(specFD)
	unix.CloseOnExec(resultFD)
	err := enter()
	os.NewFile(resultFD, "result").WriteString(err.Error())
	return err
}

func enter() error {
	var spec Spec
	if err := json.NewDecoder(os.NewFile(specFD, "spec")).Decode(&spec); err != nil {
		return fmt.Errorf("read the container's specification: %w", err)
	}
	if !spec.HostNetwork {
		unix.CloseOnExec(netFD)
		if err := unix.Setns(netFD, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the pod's network: %w", err)
		}
		if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
			return fmt.Errorf("set the host name: %w", err)
		}
	}
	if err := mountRoot(&spec); err != nil {
		return err
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("working directory %s: %w", dir, err)
	}
	program, err := lookUp(spec.Argv, spec.Env)
	if err != nil {
		return err
	}
	if err := spec.dropPrivileges(); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", program, unix.Exec(program, spec.Argv, spec.Env))
}

// dropPrivileges keeps the order that each step needs: the filter needs
// CAP_SYS_ADMIN, the bounding set CAP_SETPCAP, the user's change CAP_SETUID.
func (s *Spec) dropPrivileges() error {
	mask, err := capabilityMask(s.Capabilities)
	if err != nil {
		return err
	}
	if s.FilterSyscalls {
		if err := filterSyscalls(); err != nil {
			return err
		}
	}
	if err := limitBounding(mask); err != nil {
		return err
	}
	if err := setGroups(s.Groups); err != nil {
		return fmt.Errorf("set groups %v: %w", s.Groups, err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(s.Group), uintptr(s.Group), uintptr(s.Group)); errno != 0 {
		return fmt.Errorf("become group %d: %w", s.Group, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(s.User), uintptr(s.User), uintptr(s.User)); errno != 0 {
		return fmt.Errorf("become user %d: %w", s.User, errno)
	}
	if s.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if s.User != 0 {
		return nil // the change of user emptied the sets
	}
	return setCapabilities(mask)
}

// lookUp finds argv[0] as execvp would, in the container's own PATH.
func lookUp(argv, env []string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("neither the image nor the container names a command")
	}
	if strings.Contains(argv[0], "/") {
		return argv[0], nil
	}
	for _, variable := range env {
		path, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, argv[0])
			if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("start %s: not found in the container's PATH", argv[0])
}

// Join runs the program of the Spec on specFD inside the container whose first
// process is pid, and exits as it does. The Spec's mounts are not used.
func Join(pid string) error {
	runtime.LockOSThread()
	var spec Spec
	if err := json.NewDecoder(os.NewFile(specFD, "spec")).Decode(&spec); err != nil {
		return fmt.Errorf("read the command's specification: %w", err)
	}
	// A thread that shares its root with others may not change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	var handles []*os.File // all first: the container's root hides /proc of the node
	kinds := []string{"net", "uts", "ipc", "pid", "mnt"}
	for _, kind := range kinds {
		handle, err := os.Open("/proc/" + pid + "/ns/" + kind)
		if err != nil {
			return err
		}
		handles = append(handles, handle)
	}
	for i, handle := range handles {
		if err := unix.Setns(int(handle.Fd()), 0); err != nil {
			return fmt.Errorf("enter the container's %s namespace: %w", kinds[i], err)
		}
	}
	program, err := lookUp(spec.Argv, spec.Env)
	if err != nil {
		return err
	}
	if err := spec.dropPrivileges(); err != nil {
		return err
	}
	// The namespace of processes holds for children only, so the program is one.
	// It is forked from this thread and so has its credentials.
	command := exec.Command(program)
	command.Args, command.Env, command.Dir = spec.Argv, spec.Env, "/"
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := command.Run(); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
