//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// compile builds a package of a module for Linux, statically.
func compile(t *testing.T, dir, pkg, arch string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// open unpacks an archive and checks every digest and size in it.
func open(t *testing.T, archive string) (name string, index v1.ImageIndex) {
	t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir := t.TempDir()
	unpack(t, tar.NewReader(in), dir)
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v, %v", manifest, err)
	}
	only := manifest.Manifests[0]
	if index, err = all.ImageIndex(only.Digest); err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	return only.Annotations["io.containerd.image.name"], index
}

// unpack writes what an archive has below dir.
func unpack(t *testing.T, in *tar.Reader, dir string) (names []string) {
	t.Helper()
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, header.FileInfo().Mode().Perm())
		} else {
			var content []byte
			if content, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(path, content, header.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSameInputSameImage(t *testing.T) {
	amd64, arm64 := compile(t, ".", "./testdata/hello", "amd64"), compile(t, ".", "./testdata/hello", "arm64")
	make := func(version string) (archive, said string) {
		t.Helper()
		archive = filepath.Join(t.TempDir(), "image.tar")
		var out bytes.Buffer
		if err := run([]string{"-name", "example.org:5000/moongate:v1", "-version", version, "-revision", "abc", "-created", "1700000000",
			"-o", archive, "amd64=" + amd64, "arm64=" + arm64}, &out); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		return string(content), strings.ReplaceAll(out.String(), archive, "")
	}
	first, said := make("v1")
	again, saidAgain := make("v1")
	other, saidOther := make("v2")
	if first != again || said != saidAgain {
		t.Error("the same input gave another image")
	}
	if first == other || said == saidOther {
		t.Error("another version gave the same image")
	}

	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(archive, []byte(first), 0o644); err != nil {
		t.Fatal(err)
	}
	name, index := open(t, archive)
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if name != "example.org:5000/moongate:v1" || !strings.Contains(said, digest.String()) {
		t.Errorf("name %s, digest %s, said %s", name, digest, said)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Created.Unix() != 1700000000 || config.Config.User != "65532:65532" || config.Architecture != m.Platform.Architecture ||
			config.Config.Labels["org.opencontainers.image.revision"] != "abc" {
			t.Errorf("config of %v: %+v", m.Platform, config)
		}
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %q", platforms)
	}
}

func TestRefuses(t *testing.T) {
	hello := compile(t, ".", "./testdata/hello", "amd64")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-name", "a:b", "-o", archive}, "at least one"},
		{[]string{"-o", archive, "amd64=" + hello}, "-name"},
		{[]string{"-name", "example.org:5000/a", "-o", archive, "amd64=" + hello}, "no tag"},
		{[]string{"-name", "a:b", "-o", archive, hello}, "ARCHITECTURE=BINARY"},
		{[]string{"-name", "a:b", "-o", archive, "arm64=" + hello}, "EM_X86_64, not for arm64"},
		{[]string{"-name", "a:b", "-o", archive, "m68k=" + hello}, "m68k"},
		{[]string{"-name", "a:b", "-o", archive, "amd64=" + script}, "no program"},
		{[]string{"-name", "a:b", "-o", archive, "amd64=" + script + ".absent"}, "no such file"},
		{[]string{"-name", "a:b", "-o", archive, "amd64=" + dynamic(t)}, "CGO_ENABLED=0"},
	} {
		if err := run(test.args, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v", test.args, err)
		}
	}
	if _, err := os.Stat(archive); err == nil {
		t.Error("an archive was written all the same")
	}
}

// dynamic is hello with the segment that every dynamically linked program has.
func dynamic(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(compile(t, ".", "./testdata/hello", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	// The first program header begins after the 64 bytes of the file's header, with its type.
	content[64] = 3 // PT_INTERP
	file := filepath.Join(t.TempDir(), "dynamic")
	if err := os.WriteFile(file, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSBOM holds the bill of materials against the image: digests, programs, modules and certificates, nothing that has no place.
func TestSBOM(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	args := []string{"-name", "example.org:5000/shop/moongate:v1", "-version", "v1", "-created", "1700000000", "-o", archive}
	for _, arch := range []string{"amd64", "arm64"} {
		args = append(args, arch+"="+compile(t, ".", "./testdata/hello", arch))
	}
	bill := func() []byte {
		t.Helper()
		if err := run(args, io.Discard); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(strings.TrimSuffix(archive, ".tar") + ".cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	content := bill()
	if !bytes.Equal(content, bill()) {
		t.Error("the same input gave another bill of materials")
	}
	bom := new(cyclonedx.BOM)
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(content), cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	_, index := open(t, archive)
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	main := bom.Metadata.Component
	if want := "pkg:oci/moongate@sha256%3A" + digest.Hex + "?repository_url=example.org%3A5000/shop/moongate&tag=v1"; main.PackageURL != want ||
		main.Type != cyclonedx.ComponentTypeContainer || (*main.Hashes)[0].Value != digest.Hex {
		t.Errorf("the image is %+v, want %s", main, want)
	}
	names := map[string]string{main.BOMRef: main.Name}
	for _, c := range *bom.Components {
		if names[c.BOMRef] != "" || c.Version == "" || c.PackageURL == "" {
			t.Errorf("component %+v", c)
		}
		names[c.BOMRef] = c.Name
	}
	needs := map[string][]string{}
	for _, d := range *bom.Dependencies {
		for _, on := range *d.Dependencies {
			if names[d.Ref] == "" || names[on] == "" {
				t.Errorf("%s needs %s, which is no component", d.Ref, on)
			}
			needs[d.Ref] = append(needs[d.Ref], on)
		}
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		image := manifest.Manifests[i].Digest.String()
		if !slices.Contains(needs[digest.String()], image) {
			t.Errorf("the image for %s is missing in %q", arch, needs[digest.String()])
		}
		if got := needs[image]; len(got) != 2 || got[0] != "moongate-"+arch || names[got[1]] != "golang.org/x/crypto/x509roots/fallback" {
			t.Errorf("the image for %s needs %q", arch, got)
		}
		if got := needs["moongate-"+arch]; !slices.Contains(got, "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go")) {
			t.Errorf("the program for %s needs %q", arch, got)
		}
	}
}

// TestProduct makes an image of Moongate, unpacks it and runs it as a container would: on
// this root file system alone, as its user.
func TestProduct(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	args := []string{"-name", "moongate:test", "-o", archive, runtime.GOARCH + "=" + compile(t, "../..", "./cmd/moongate", runtime.GOARCH)}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	_, index := open(t, archive)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	packed := mutate.Extract(image)
	defer packed.Close()
	dir := t.TempDir()
	names := unpack(t, tar.NewReader(packed), dir)
	slices.Sort(names)
	want := []string{"etc", "etc/group", "etc/passwd", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt", "usr", "usr/bin", "usr/bin/moongate"}
	if !slices.Equal(names, want) {
		t.Errorf("the image has %q", names)
	}
	text, err := os.ReadFile(filepath.Join(dir, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool, certificates := x509.NewCertPool(), bytes.Count(text, []byte("BEGIN CERTIFICATE"))
	if !pool.AppendCertsFromPEM(text) || certificates < 100 {
		t.Errorf("%d authorities", certificates)
	}

	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cmd := contained(dir, config.Config.Entrypoint[0], "version")
	cmd.Env = config.Config.Env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v1.7.0") {
		t.Errorf("moongate version: %v\n%s", err, out)
	}
}
