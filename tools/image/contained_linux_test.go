package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// contained runs a program with dir for its root, as the image's user. Who is not root
// may do that in a user namespace.
func contained(dir, program string, args ...string) *exec.Cmd {
	id, err := strconv.Atoi(nonroot)
	if err != nil {
		panic(err)
	}
	cmd := &exec.Cmd{Path: program, Args: append([]string{program}, args...), Dir: "/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Credential.NoSetGroups = true
	}
	return cmd
}
