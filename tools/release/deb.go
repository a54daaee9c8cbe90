package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// packaged are the files of the Debian package beside the binary: where each is from, below the root, and where it goes.
// Those in /etc are the administrator's once they are installed.
var packaged = map[string]string{
	"usr/lib/systemd/system/moongate.service":     "tools/release/debian/moongate.service",
	"etc/moongate/class.yaml":                     "tools/release/debian/class.yaml",
	"etc/default/moongate":                        "tools/release/debian/default",
	"usr/share/doc/moongate/copyright":            "LICENSE",
	"usr/share/doc/moongate/examples/hello.yaml":  "examples/hello.yaml",
	"usr/share/doc/moongate/examples/canary.yaml": "examples/canary.yaml",
}

const control = `Package: moongate
Version: %s
Architecture: %s
Maintainer: The Moongate authors <moongate-dev@users.noreply.github.com>
Section: net
Priority: optional
Homepage: https://github.com/moongate-dev/moongate
Depends: passwd, init-system-helpers (>= 1.54)
Recommends: ca-certificates
Installed-Size: %d
Description: Kubernetes Gateway API gateway with a data plane of its own
 Serves HTTP, gRPC, TLS, TCP and UDP as the manifests below /etc/moongate say,
 and follows their changes without losing a request.
`

// debianPackage packs a binary with the unit by which systemd runs it, by dpkg-deb(1): the format is Debian's, and
// so is the tool. Files get the release's time, so that the same input gives the same bytes.
func (r *release) debianPackage(b binary) error {
	tree, err := os.MkdirTemp("", "moongate-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := os.Chmod(tree, 0o755); err != nil {
		return err
	}
	if err := copyTo(filepath.Join(tree, "usr/bin/moongate"), b.file, 0o755); err != nil {
		return err
	}
	size := int64(0)
	var conffiles []string
	for to, from := range packaged {
		if err := copyTo(filepath.Join(tree, to), filepath.Join(r.root, from), 0o644); err != nil {
			return err
		}
		if strings.HasPrefix(to, "etc/") {
			conffiles = append(conffiles, "/"+to+"\n")
		}
	}
	if err := filepath.Walk(tree, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			size += (info.Size() + 1023) / 1024
		}
		return err
	}); err != nil {
		return err
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if err := copyTo(filepath.Join(tree, "DEBIAN", script), filepath.Join(r.root, "tools/release/debian", script), 0o755); err != nil {
			return err
		}
	}
	// A pre-release comes before the release, which dpkg says by a tilde.
	version := strings.Replace(r.version.String(), "-", "~", 1)
	slices.Sort(conffiles)
	for name, content := range map[string]string{
		"control":   fmt.Sprintf(control, version, b.arch, size),
		"conffiles": strings.Join(conffiles, ""),
	} {
		if err := os.WriteFile(filepath.Join(tree, "DEBIAN", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := r.date(tree); err != nil {
		return err
	}
	cmd := exec.Command("dpkg-deb", "--build", "--root-owner-group", "-Zxz", tree, filepath.Join(r.to, fmt.Sprintf("moongate_%s_%s.deb", r.version, b.arch)))
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.created.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		if _, found := exec.LookPath("dpkg-deb"); found != nil {
			return fmt.Errorf("%w: install your system's package dpkg", found)
		}
		return fmt.Errorf("dpkg-deb: %w: %s", err, out)
	}
	return nil
}

// date gives everything below a folder the release's time.
func (r *release) date(dir string) error {
	return filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, r.created, r.created)
	})
}

func copyTo(to, from string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, content, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode) // whatever the umask
}
