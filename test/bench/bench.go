//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/test/bench/load"
)

// bench is one run of the program.
type bench struct {
	*settings
	ctx      context.Context
	out      io.Writer
	dir      string // everything that is written to disk
	children []*child
	spawned  int
	origin   originPorts
	originID int // process
	cert     *certificate
	summary  []summaryRow
	failures int      // requests and edits that went wrong
	profiles []string // files with a profile of a window each
}

// newBench prepares what all workloads share: the programs, a certificate, the origin.
func newBench(ctx context.Context, s *settings, out io.Writer) (*bench, error) {
	if err := checkInstalled(s.contenders, s.workloads); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "moongate-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, ctx: ctx, out: out, dir: dir}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) prepare() (err error) {
	if b.cert, err = newCertificate(); err != nil {
		return err
	}
	if b.hasMoongate() && b.moongate == "" {
		if b.moongate, err = build(b.ctx, b.dir, ".", "./cmd/moongate"); err != nil {
			return err
		}
	}
	if slices.Contains(b.contenders, "caddy") && b.caddy == "" {
		if b.caddy, err = build(b.ctx, b.dir, "test/caddy", "."); err != nil {
			return err
		}
	}
	return b.startOrigin()
}

// checkInstalled names everything that is missing at once.
func checkInstalled(contenders, workloads []string) error {
	var missing []string
	for _, name := range contenders {
		if !slices.Contains([]string{"moongate", baseline, "caddy", floor}, name) && program(name) == "" {
			missing = append(missing, name)
		}
		if name == "nginx" && slices.ContainsFunc(workloads, layer4) {
			if _, ok := streamModule(); !ok {
				missing = append(missing, "libnginx-mod-stream")
			}
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("not installed: run `sudo apt-get install %s`, or leave them out with -contenders", strings.Join(missing, " "))
}

// program finds an executable, also where only root's PATH looks.
func program(name string) string {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}

// build compiles a package of a module of the repository that this program lies in, into a folder.
func build(ctx context.Context, dir, module, pkg string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	binaries, err := os.MkdirTemp(dir, "bin-")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binaries+"/", pkg)
	cmd.Dir = filepath.Join(root, module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s in %s: %w\n%s", pkg, cmd.Dir, err, out)
	}
	built, err := os.ReadDir(binaries)
	if err != nil || len(built) != 1 {
		return "", fmt.Errorf("go build %s in %s made %d files (%w)", pkg, cmd.Dir, len(built), err)
	}
	return filepath.Join(binaries, built[0].Name()), nil
}

// repository is the nearest folder upwards that holds Moongate's go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/moongate-dev/moongate\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run it inside the repository, or name a binary with -moongate")
		}
		dir = filepath.Dir(dir)
	}
}

func (b *bench) startOrigin() error {
	t, err := b.startRole("role-origin", b.loadCPU, keyPair{b.cert.chain, b.cert.key})
	if err != nil {
		return err
	}
	if err := t.answer(&b.origin); err != nil {
		return err
	}
	b.originID = t.cmd.Process.Pid
	return nil
}

// measure runs one window of load.
func (b *bench) measure(spec *load.Spec) (*load.Result, error) {
	t, err := b.startRole("role-load", b.loadCPU, spec)
	if err != nil {
		return nil, err
	}
	var result load.Result
	if err := t.answer(&result); err != nil {
		return nil, err
	}
	return &result, t.finish()
}

// stopAll ends the given contenders.
func stopAll(contenders []*contender) error {
	var errs []error
	for _, c := range contenders {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

// close ends every child, the youngest first, and removes what was written.
func (b *bench) close() error {
	var errs []error
	for _, c := range slices.Backward(b.children) {
		errs = append(errs, c.stop())
	}
	if b.keep {
		fmt.Fprintln(b.out, "\nkept:", b.dir)
	} else {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}
