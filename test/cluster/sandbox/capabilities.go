package sandbox

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilityNames is in the order of linux/capability.h.
var capabilityNames = strings.Fields(`
	CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE
	SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// AllCapabilities is what ALL means in add and drop.
func AllCapabilities() []string { return append([]string(nil), capabilityNames...) }

// KnownCapability says whether name, without CAP_, is a capability of Linux.
func KnownCapability(name string) bool {
	for _, known := range capabilityNames {
		if name == known {
			return true
		}
	}
	return false
}

func capabilityMask(names []string) (uint64, error) {
	var mask uint64
next:
	for _, name := range names {
		for bit, known := range capabilityNames {
			if name == known {
				mask |= 1 << bit
				continue next
			}
		}
		return 0, fmt.Errorf("unknown capability %q", name)
	}
	return mask, nil
}

// limitBounding drops everything outside mask from the calling thread's
// bounding set, so that not even a setuid binary gets it back.
func limitBounding(mask uint64) error {
	for bit := range capabilityNames {
		if mask&(1<<bit) != 0 {
			continue
		}
		// EINVAL: this kernel is older than the capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(bit), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %s: %w", capabilityNames[bit], err)
		}
	}
	return nil
}

// setCapabilities makes mask the calling thread's permitted and effective set.
// The inheritable and ambient sets stay empty, as in Kubernetes: a program that
// is not root gets capabilities from its file or not at all.
func setCapabilities(mask uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}
