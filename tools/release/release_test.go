package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

const (
	root    = "../.."
	version = "1.2.3-rc.1"
	created = "1700000000"
	digest  = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// built is the folder of the product for the platform of this test, as a release has it.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "moongate-release-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		return m.Run()
	}())
}

// moongate builds it once.
var moongate = sync.OnceValues(func() (string, error) {
	file := filepath.Join(built, "moongate")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/moongate-dev/moongate/internal/cli.version=v"+version, "-o", file, "./cmd/moongate")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

// hello is a program that is small, for what does not depend on the product: compressing that takes long.
func hello(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "moongate")
	cmd := exec.Command("go", "build", "-trimpath", "-o", file, "./testdata/hello")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// image is an archive in the OCI's layout with its bill of materials, as far as a release reads them.
func image(t *testing.T, digest string) string {
	t.Helper()
	content := `{"manifests":[{"digest":"` + digest + `","annotations":{"io.containerd.image.name":"ghcr.io/moongate-dev/moongate:v1.2.3-rc.1"}}]}`
	file := filepath.Join(t.TempDir(), "image.tar")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, content)
	w.Close()
	bill := `{"bomFormat":"CycloneDX","specVersion":"1.6","metadata":{"component":{"bom-ref":"` + digest + `","type":"container","name":"moongate"}}}`
	for name, content := range map[string][]byte{file: b.Bytes(), filepath.Join(filepath.Dir(file), "image.cdx.json"): []byte(bill)} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// pack makes a release of binaries for Linux and another system.
func pack(t *testing.T, linux, darwin, image string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "release")
	if err := run([]string{
		"-root", root, "-version", "v" + version, "-created", created, "-image", image, "-o", to,
		"linux/" + runtime.GOARCH + "=" + linux, "darwin/arm64=" + darwin,
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestRelease(t *testing.T) {
	binary, err := moongate()
	if err != nil {
		t.Fatal(err)
	}
	small, image := hello(t), image(t, digest)
	to := pack(t, binary, small, image)
	linux := "moongate_" + version + "_linux_" + runtime.GOARCH

	t.Run("files", func(t *testing.T) {
		want := map[string]bool{
			linux + ".tar.gz": true, linux + ".cdx.json": true, "moongate_" + version + "_" + runtime.GOARCH + ".deb": true,
			"moongate_" + version + "_darwin_arm64.tar.gz": true, "moongate_" + version + "_darwin_arm64.cdx.json": true,
			"moongate-" + version + ".tgz": true, "moongate-crds-" + version + ".tgz": true, "moongate.yaml": true, "moongate_" + version + "_image.tar": true, "moongate_" + version + "_image.cdx.json": true, "SHA256SUMS": true,
		}
		entries, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !want[entry.Name()] {
				t.Errorf("%s was written", entry.Name())
			}
			delete(want, entry.Name())
		}
		for name := range want {
			t.Errorf("%s is missing", name)
		}
	})

	t.Run("checksums", func(t *testing.T) {
		cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = to
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), ": OK\n") != 10 {
			t.Errorf("sha256sum: %v: %s", err, out)
		}
	})

	t.Run("same input, same bytes", func(t *testing.T) {
		one := pack(t, small, small, image)
		time.Sleep(1100 * time.Millisecond) // archives have times in seconds
		other := pack(t, small, small, image)
		entries, err := os.ReadDir(one)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			a, b := read(t, filepath.Join(one, entry.Name())), read(t, filepath.Join(other, entry.Name()))
			if !bytes.Equal(a, b) {
				t.Errorf("%s differs between two releases of the same input", entry.Name())
			}
		}
	})

	t.Run("archive", func(t *testing.T) {
		zipped, err := gzip.NewReader(bytes.NewReader(read(t, filepath.Join(to, linux+".tar.gz"))))
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]int64{}
		for r := tar.NewReader(zipped); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			modes[header.Name] = header.Mode
			if !header.ModTime.Equal(time.Unix(1700000000, 0)) {
				t.Errorf("%s is of %s", header.Name, header.ModTime)
			}
			if header.Name == linux+"/moongate" {
				sum := sha256.New()
				io.Copy(sum, r)
				if want := sha256.Sum256(read(t, binary)); !bytes.Equal(sum.Sum(nil), want[:]) {
					t.Error("the binary in the archive is another one")
				}
			}
		}
		want := map[string]int64{linux + "/moongate": 0o755, linux + "/LICENSE": 0o644, linux + "/README.md": 0o644}
		if fmt.Sprint(modes) != fmt.Sprint(want) {
			t.Errorf("the archive holds %v, want %v", modes, want)
		}
	})

	t.Run("bill of materials", func(t *testing.T) {
		var bom struct {
			BOMFormat, SpecVersion string
			Metadata               struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version, PURL string }
		}
		if err := json.Unmarshal(read(t, filepath.Join(to, linux+".cdx.json")), &bom); err != nil {
			t.Fatal(err)
		}
		if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Name != "moongate" || bom.Metadata.Component.Version != "v"+version {
			t.Errorf("it is of %+v", bom.Metadata)
		}
		found := map[string]string{}
		for _, c := range bom.Components {
			found[c.Name] = c.Version
			if c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/") {
				t.Errorf("%s: version %q, package URL %q", c.Name, c.Version, c.PURL)
			}
		}
		if found["std"] != runtime.Version() {
			t.Errorf("the standard library is of %q, want %q", found["std"], runtime.Version())
		}
		mod := string(read(t, filepath.Join(root, "go.mod")))
		for _, module := range []string{"google.golang.org/grpc", "sigs.k8s.io/gateway-api", "github.com/spf13/cobra"} {
			if !strings.Contains(mod, module+" "+found[module]+"\n") {
				t.Errorf("%s %q is not what go.mod has", module, found[module])
			}
		}
	})

	t.Run("charts", func(t *testing.T) {
		for _, name := range []string{"moongate", "moongate-crds"} {
			c, err := loader.Load(filepath.Join(to, name+"-"+version+".tgz"))
			if err != nil {
				t.Fatal(err)
			}
			if c.Metadata.Version != version {
				t.Errorf("%s is of version %s", name, c.Metadata.Version)
			}
			for _, wanted := range c.Metadata.Dependencies {
				if wanted.Version != version {
					t.Errorf("%s wants %s %s", name, wanted.Name, wanted.Version)
				}
			}
			for _, have := range c.Dependencies() {
				if have.Metadata.Version != version {
					t.Errorf("%s has %s %s", name, have.Name(), have.Metadata.Version)
				}
			}
			if name == "moongate" && c.Metadata.AppVersion != "v"+version {
				t.Errorf("its image is %s", c.Metadata.AppVersion)
			}
		}
	})

	t.Run("manifest", func(t *testing.T) {
		want := "ghcr.io/moongate-dev/moongate:v" + version + "@" + digest
		text := string(read(t, filepath.Join(to, "moongate.yaml")))
		if got := strings.Count(text, "ghcr.io/moongate-dev/moongate"); got != strings.Count(text, want) || got < 2 {
			t.Errorf("%d of %d images are %s", strings.Count(text, want), got, want)
		}
	})
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-version d4200c8 -o x linux/amd64=y", "is not a semantic version"},
		{"-version v1.2.3 -o x linux=y", "is not OS/ARCHITECTURE=BINARY"},
		{"-version v1.2.3 -o x", "at least one"},
		{"-version v1.2.3 linux/amd64=y", "give -o"},
		{"-version v1.2.3+4 -o x linux/amd64=y", "build metadata"},
	} {
		if err := run(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestKept: what is refused leaves the folder to write as it was, inputs among its content.
func TestKept(t *testing.T) {
	to := t.TempDir()
	kept, outside := filepath.Join(to, "sub", "moongate"), filepath.Join(t.TempDir(), "moongate")
	if err := os.Mkdir(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{kept, outside} {
		if err := os.WriteFile(file, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(to, link); err != nil {
		t.Fatal(err)
	}
	other := image(t, digest)
	if err := os.WriteFile(imageSBOM(other), []byte(strings.ReplaceAll(string(read(t, imageSBOM(other))), "0123", "3210")), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := image(t, digest)
	if err := os.Remove(imageSBOM(bare)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"the bill of materials of another image", "is not the bill of materials of the image", []string{"-root", root, "-o", to, "-image", other, "linux/amd64=" + outside}},
		{"an image without one", "no such file", []string{"-root", root, "-o", to, "-image", bare, "linux/amd64=" + outside}},
		{"a binary in it", "lies in", []string{"-root", root, "-o", to, "linux/amd64=" + kept}},
		{"a binary in it, by a link", "lies in", []string{"-root", root, "-o", link, "linux/amd64=" + kept}},
		{"the root in it", "lies in", []string{"-root", to, "-o", to, "linux/amd64=" + outside}},
		{"a binary that is missing", "no such file", []string{"-root", root, "-o", to, "linux/amd64=" + outside + "x"}},
		{"a digest too short", "64 hexadecimal digits", []string{"-root", root, "-o", to, "-image", image(t, "sha256:0123"), "linux/amd64=" + outside}},
	} {
		if err := run(append([]string{"-version", "v1.2.3"}, c.args...), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
