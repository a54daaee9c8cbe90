package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// postinstStubs are what the script calls. Which process runs is in a file, that of a reload is changed by the stub of sleep after as many seconds as the test says.
var postinstStubs = map[string]string{
	"getent":             "exit 0",
	"deb-systemd-helper": "exit 0",
	"sleep":              `echo slept >>$DIR/calls; [ "$(grep -c slept $DIR/calls)" = "$AFTER" ] && echo 2 >$DIR/pid; exit 0`,
	"deb-systemd-invoke": `echo "$@" >>$DIR/calls; exit $STATUS`,
	"systemctl": `case "$*" in
*is-active*) exit $INACTIVE ;;
*MainPID*) cat $DIR/pid ;;
esac`,
}

// TestPostinst: an upgrade says where the version before still runs.
func TestPostinst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run this test as root: it makes namespaces")
	}
	const warned = "the version that was installed before still runs"
	for name, tc := range map[string]struct {
		inactive, after, status string
		did, said               string
		slept                   int
	}{
		"replaced":              {"0", "3", "0", "reload moongate.service", "", 3},
		"never replaced":        {"0", "0", "0", "reload moongate.service", warned, 70},
		"reload fails":          {"0", "0", "1", "reload moongate.service", warned, 0},
		"did not run":           {"3", "0", "0", "restart moongate.service", "", 0},
		"did not run and fails": {"3", "0", "1", "restart moongate.service", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for stub, text := range postinstStubs {
				if err := os.WriteFile(filepath.Join(dir, stub), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "pid"), []byte("1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec sh "$1" configure 1.0.0`,
				"sh", filepath.Join(root, "tools/release/debian/postinst"))
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DIR="+dir, "INACTIVE="+tc.inactive, "AFTER="+tc.after, "STATUS="+tc.status)
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			calls := string(read(t, filepath.Join(dir, "calls")))
			if slept := strings.Count(calls, "slept"); !strings.HasPrefix(calls, tc.did+"\n") || slept != tc.slept {
				t.Errorf("it did %q, want %q and to sleep %d times", calls, tc.did, tc.slept)
			}
			if (tc.said == "") != (len(said) == 0) || !strings.Contains(string(said), tc.said) {
				t.Errorf("it said %q, want %q", said, tc.said)
			}
		})
	}
}
