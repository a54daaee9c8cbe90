package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedSyscalls answer EPERM under seccompProfile RuntimeDefault. The list is
// what container runtimes leave out of their default allow-list that Linux has:
// the administration of mounts, namespaces, modules, clocks, keys and kernels,
// other processes' memory, and io_uring.
var refusedSyscalls = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
	unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
	unix.SYS_MOVE_PAGES, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY,
	unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF,
	unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// namespaceFlags of clone(2): CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
)

// filterSyscalls puts the calling thread, and what it executes, under the
// default filter. Without no_new_privs it needs CAP_SYS_ADMIN, so it is called
// before capabilities are dropped.
func filterSyscalls() error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
	}
	refuse := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	program := []unix.SockFilter{
		load(dataArch), equal(auditArch, 1, 0), answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(dataNumber),
		// clone3 passes its flags by pointer, which a filter cannot read: ENOSYS makes
		// C libraries fall back to clone.
		equal(unix.SYS_CLONE3, 0, 1), answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
	}
	for _, number := range refusedSyscalls {
		program = append(program, equal(number, 0, 1), refuse)
	}
	program = append(program,
		equal(unix.SYS_CLONE, 0, 3), load(dataArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 0, Jf: 1, K: namespaceFlags}, refuse,
		answer(unix.SECCOMP_RET_ALLOW))

	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
