package cli

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

const someMappings = `00400000-00600000 r-xp 00000000 fe:00 77                                 /moon gate
Size:               2048 kB
Rss:                1024 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00600000-00700000 r--p 00200000 fe:00 77                                 /moon gate
Rss:                 512 kB
Anonymous:             4 kB
00700000-00800000 r--p 00300000 fe:00 77                                 /moon gate
Rss:                 512 kB
Anonymous:             0 kB
00800000-00900000 rw-p 00400000 fe:00 77                                 /moon gate
Anonymous:             0 kB
00900000-00a00000 r--p 00000000 fe:00 78                                 /moon gate.other
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 00:00 0                          [vvar]
Anonymous:             0 kB
`

// TestCleanMappings: a page that was written to, by a relocation or a debugger, is nowhere but in memory.
func TestCleanMappings(t *testing.T) {
	want := []mapping{{0x400000, 0x200000}, {0x700000, 0x100000}}
	if got := cleanMappings([]byte(someMappings), "/moon gate"); !reflect.DeepEqual(got, want) {
		t.Errorf("%x", got)
	}
	if got := cleanMappings([]byte("garbage\n\nRss: 4 kB\nzz-zz r-xp 0 0 0 /x\nAnonymous: 0 kB\n"), "/x"); got != nil {
		t.Errorf("garbage is %x", got)
	}
}

// TestReleaseProgram: it goes on, with fewer pages.
func TestReleaseProgram(t *testing.T) {
	resident := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(status), "RssFile:")
		if !ok {
			t.Fatal("the kernel does not tell RssFile")
		}
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := resident()
	releaseProgram()
	if after := resident(); after >= before {
		t.Errorf("%d KiB of files were resident, and now %d", before, after)
	}
	if files, want := int(residentFiles()>>10), resident(); files < want/2 || files > want*2 {
		t.Errorf("%d KiB of files are resident, not %d", files, want)
	}
}
