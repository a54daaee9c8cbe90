package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
)

// machine is a system like this one that a package can be installed in: what it writes goes to an overlay, which
// the test alone sees.
type machine struct{ root string }

func newMachine(t *testing.T) machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("run this test as root: it installs a package")
	}
	// An overlay cannot lie on another one, nor below what it covers.
	dir := filepath.Join("/run", fmt.Sprintf("moongate-release-%d", os.Getpid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := machine{filepath.Join(dir, "root")}
	options := "lowerdir=/,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := syscall.Mount("overlay", m.root, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(m.root, syscall.MNT_DETACH) })
	for _, name := range []string{"dev", "proc"} {
		if err := syscall.Mount("/"+name, filepath.Join(m.root, name), "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Unmount(filepath.Join(m.root, name), syscall.MNT_DETACH) })
	}
	return m
}

// command is a command in the machine, without what this test's environment holds.
func (m machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command("chroot", append([]string{m.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

func (m machine) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestInstallation installs the Debian package on a copy of this machine, runs what its unit runs as the unit's
// user, and removes it.
func TestInstallation(t *testing.T) {
	file, err := moongate()
	if err != nil {
		t.Fatal(err)
	}
	r := release{root: root, version: semver.MustParse(version), created: time.Unix(1700000000, 0), to: t.TempDir()}
	if err := r.debianPackage(binary{"linux", runtime.GOARCH, file}); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	deb := "/moongate.deb"
	if err := copyTo(m.root+deb, filepath.Join(r.to, "moongate_"+version+"_"+runtime.GOARCH+".deb"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.must(t, "dpkg", "--install", deb)

	if got, want := m.must(t, "dpkg-query", "--show", "moongate"), "moongate\t1.2.3~rc.1\n"; got != want {
		t.Errorf("installed is %q, want %q", got, want)
	}
	if got := m.must(t, "moongate", "version"); !strings.Contains(got, "v"+version) {
		t.Errorf("moongate version says %s", got)
	}
	m.must(t, "systemd-analyze", "verify", "--man=no", "moongate.service")
	enabled := func(when string, want bool) {
		t.Helper()
		out, err := m.command("systemctl", "is-enabled", "moongate.service").CombinedOutput()
		if (err == nil) != want {
			t.Errorf("%s the unit is %s", when, out)
		}
	}
	enabled("after installation", true)
	m.must(t, "dpkg", "--remove", "moongate")
	enabled("after remove", false)
	m.must(t, "dpkg", "--install", deb)
	enabled("installed again", true)
	m.must(t, "systemctl", "disable", "moongate.service")
	m.must(t, "dpkg", "--install", deb)
	enabled("upgraded where the administrator has disabled it", false)

	unit := map[string]string{}
	for _, line := range strings.Split(string(read(t, m.root+"/usr/lib/systemd/system/moongate.service")), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			unit[key] = value
		}
	}
	// The example of the package, on a port that needs the unit's capability.
	port := lowPort(t)
	hello := string(read(t, m.root+"/usr/share/doc/moongate/examples/hello.yaml"))
	hello = strings.ReplaceAll(hello, "port: 8080", fmt.Sprintf("port: %d", port))
	if err := os.WriteFile(m.root+"/etc/moongate/hello.yaml", []byte(hello), 0o644); err != nil {
		t.Fatal(err)
	}
	start := strings.ReplaceAll(unit["ExecStart"], "$MOONGATE_ARGS", "--bind 127.0.0.1 --admin-address 127.0.0.1:0 --access-log off")
	args := append([]string{"setpriv", "--reuid", unit["User"], "--regid", unit["Group"], "--clear-groups", "--no-new-privs",
		"--inh-caps", "-all,+net_bind_service", "--ambient-caps", "-all,+net_bind_service", "--bounding-set", "-all,+net_bind_service"},
		strings.Fields(start)...)
	service := m.command(args...)
	log := &strings.Builder{}
	service.Stdout, service.Stderr = log, log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- service.Wait() }()
	var status int
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			status = resp.StatusCode
			resp.Body.Close()
			break
		}
	}
	if err := service.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if status != http.StatusBadGateway && status != http.StatusServiceUnavailable { // no backend runs
		t.Errorf("it answered %d; its log:\n%s", status, log)
	}

	m.must(t, "dpkg", "--remove", "moongate")
	if _, err := os.Stat(m.root + "/usr/bin/moongate"); !os.IsNotExist(err) {
		t.Errorf("after remove, the binary: %v", err)
	}
	if _, err := os.Stat(m.root + "/etc/moongate/class.yaml"); err != nil {
		t.Errorf("after remove, the configuration: %v", err)
	}
	m.must(t, "dpkg", "--purge", "moongate")
	if _, err := os.Stat(m.root + "/etc/moongate/class.yaml"); !os.IsNotExist(err) {
		t.Errorf("after purge, the configuration: %v", err)
	}
	if _, err := os.Stat(m.root + "/etc/moongate/hello.yaml"); err != nil {
		t.Errorf("after purge, the administrator's manifest: %v", err)
	}
	if out, err := m.command("getent", "passwd", "moongate").CombinedOutput(); err == nil {
		t.Errorf("after purge, the user: %s", out)
	}

	// An account that was there before the package is not the package's to delete.
	m.must(t, "useradd", "--system", "--user-group", "moongate")
	m.must(t, "dpkg", "--install", deb)
	m.must(t, "dpkg", "--purge", "moongate")
	m.must(t, "getent", "passwd", "moongate")
}

// lowPort is a port below 1024 that nobody uses.
func lowPort(t *testing.T) int {
	t.Helper()
	for port := 900; port < 1000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("every port from 900 to 999 is used")
	return 0
}
