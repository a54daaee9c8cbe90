package cli

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// releaseProgram drops the pages of the program itself. Two thirds of those that are resident after the start were needed only for
// the start, or not at all: the kernel reads neighbouring pages together. A page that is needed again is mapped from the page cache
// without reading the disk; the others can be evicted when memory is short, which is not possible while they are mapped.
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
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.length, syscall.MADV_DONTNEED) // it is only advice
	}
}

// residentFiles returns how many bytes of mapped files are resident: of the program, and of shared memory, which it has none of.
func residentFiles() uint64 {
	sizes, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(sizes))
	if err != nil || len(fields) < 3 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[2], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// mapping is a part of the address space.
type mapping struct{ start, length uintptr }

// cleanMappings returns the mappings of the file in /proc/PID/smaps that are not writable and were never written: their content is
// in the file too.
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
