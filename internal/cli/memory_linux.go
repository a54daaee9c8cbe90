package cli

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is what the process has used of the processors.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// releaseProgram lets go of the pages of the program itself. Two thirds of those that are
// resident after the start are of what only the start needed, or another verb: the kernel brings neighbours along with each page.
// What is needed again comes back from the page cache without a disk; what is not can go from there
// when memory is short, which it cannot while it is mapped.
func releaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range cleanMappings(maps, program) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.length, syscall.MADV_DONTNEED) // it is an advice
	}
}

// mapping is a part of the address space.
type mapping struct{ start, length uintptr }

// cleanMappings are those of the file, by /proc/PID/smaps, that cannot be written to and never were:
// what they hold is in the file too.
func cleanMappings(smaps []byte, file string) (out []mapping) {
	var m mapping
	ours := false
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if len(fields) > 1 && strings.HasSuffix(fields[0], ":") {
			if ours && fields[0] == "Anonymous:" && fields[1] == "0" {
				out = append(out, m)
			}
			continue
		}
		ours = false
		if len(fields) < 6 || strings.Join(fields[5:], " ") != file || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err != nil || err2 != nil {
			continue
		}
		m, ours = mapping{uintptr(start), uintptr(end - start)}, true
	}
	return out
}
