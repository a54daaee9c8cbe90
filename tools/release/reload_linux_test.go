package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// reloadScript runs in namespaces of its own, since systemd wants to have started the machine, with the folder of the test as its argument.
const reloadScript = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
ip link set lo up
export XDG_RUNTIME_DIR=/run/user SYSTEMD_UNIT_PATH=$1/units
/lib/systemd/systemd --user --unit=basic.target >$1/systemd.log 2>&1 &
manager=$!
trap 'kill -KILL $manager' EXIT # it has no unit by which it would end at SIGTERM
for i in $(seq 100); do
	[ -S /run/user/systemd/private ] && break
	sleep 0.1
done
main() { systemctl --user show moongate -p MainPID --value; }
systemctl --user start moongate
for round in 1 2; do
	before=$(main)
	systemctl --user reload moongate
	for i in $(seq 300); do
		[ "$(main)" != "$before" ] && [ ! -e "/proc/$before" ] && break
		sleep 0.1
	done
	echo "replaced: $([ "$(main)" != "$before" ] && echo yes)"
	curl --silent --output /dev/null --write-out '%{http_code}\n' http://127.0.0.1:9901/readyz
done
systemctl --user show moongate -p ActiveState -p NRestarts
systemctl --user stop moongate
systemctl --user show moongate -p ActiveState -p Result
`

// TestReload has systemd reload the package's unit: the service goes on by another process, and is waited for when it is stopped.
func TestReload(t *testing.T) {
	file, err := moongate()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Fatal("run this test as root: it makes namespaces")
	}
	dir := t.TempDir()
	// Without what only the system's manager may do.
	var unit strings.Builder
	unit.WriteString("[Service]\n")
	for _, line := range strings.Split(string(read(t, filepath.Join(root, "tools/release/debian/moongate.service"))), "\n") {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "Type", "NotifyAccess", "ExecReload", "Restart", "OOMPolicy", "TimeoutStopSec":
			fmt.Fprintln(&unit, line)
		case "ExecStart":
			start := strings.ReplaceAll(line, "$MOONGATE_ARGS", "--access-log off")
			start = strings.ReplaceAll(start, "/etc/moongate", filepath.Join(dir, "manifests"))
			fmt.Fprintln(&unit, strings.ReplaceAll(start, "/usr/bin/moongate", file))
		}
	}
	for name, text := range map[string]string{"units/moongate.service": unit.String(), "units/basic.target": "[Unit]\n",
		"manifests/class.yaml": string(read(t, filepath.Join(root, "tools/release/debian/class.yaml")))} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("unshare", "--mount", "--net", "sh", "-c", reloadScript, "sh", dir).CombinedOutput()
	want := "replaced: yes\n200\nreplaced: yes\n200\nNRestarts=0\nActiveState=active\nResult=success\nActiveState=inactive\n"
	if string(out) != want || err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "systemd.log"))
		t.Errorf("%v\n%s\nwant\n%s\nlog of systemd:\n%s\nunit:\n%s", err, out, want, log, &unit)
	}
}
