// Command release packs what users download: archives, Debian packages, charts, the manifest, bills of materials
// and checksums, from binaries and an image that are built already. The same input gives the same bytes. It is a
// module of its own, so that nothing it needs is the product's; it must never import the product.
//
//	release -root ../.. -version v1.2.3 -created 1700000000 -image bin/moongate-image.tar -o bin/release \
//	  linux/amd64=bin/build/linux/amd64/moongate darwin/arm64=...
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what is packed.
type release struct {
	root     string // of the repository
	version  *semver.Version
	created  time.Time // when the commit was made: the time of every file
	image    string    // archive of the image; "" leaves that and the manifest out
	to       string    // the folder to write
	binaries []binary
}

// binary is the program for one platform, by Go's names.
type binary struct{ os, arch, file string }

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var r release
	flags.StringVar(&r.root, "root", ".", "root of the repository")
	version := flags.String("version", "", "semantic version, such as v1.2.3")
	created := flags.Int64("created", 0, "when the commit was made, in seconds since 1970; never the time of the build")
	flags.StringVar(&r.image, "image", "", "archive of the image, whose digest the manifest names, with its bill of materials beside it; without it none of these is written")
	flags.StringVar(&r.to, "o", "", "the folder to write; its content is removed first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if r.version, err = semver.StrictNewVersion(strings.TrimPrefix(*version, "v")); err != nil {
		return fmt.Errorf("-version %q is not a semantic version such as v1.2.3: a release needs one, because Helm and dpkg compare it", *version)
	}
	if r.version.Metadata() != "" {
		return fmt.Errorf("-version %q has build metadata: leave out what begins with +, which no tag of an image may have", *version)
	}
	r.created = time.Unix(*created, 0).UTC()
	for _, arg := range flags.Args() {
		platform, file, ok := strings.Cut(arg, "=")
		system, arch, both := strings.Cut(platform, "/")
		if !ok || !both {
			return fmt.Errorf("%q is not OS/ARCHITECTURE=BINARY", arg)
		}
		r.binaries = append(r.binaries, binary{system, arch, file})
	}
	if r.to == "" || len(r.binaries) == 0 {
		return errors.New("give -o and at least one OS/ARCHITECTURE=BINARY")
	}
	if err := r.validate(); err != nil {
		return err
	}
	return r.pack(out)
}

// validate reads every input before the content of the folder to write is removed, of which none may be a part.
func (r *release) validate() error {
	inputs := []string{r.root}
	if r.image != "" {
		inputs = append(inputs, r.image, imageSBOM(r.image))
		_, digest, err := imageOf(r.image)
		if err != nil {
			return err
		}
		if err := checkImageSBOM(imageSBOM(r.image), digest); err != nil {
			return err
		}
	}
	for _, b := range r.binaries {
		inputs = append(inputs, b.file)
	}
	to, err := resolved(r.to)
	if err != nil {
		return err
	}
	for _, input := range inputs {
		if _, err := os.Stat(input); err != nil {
			return err
		}
		file, err := resolved(input)
		if err != nil {
			return err
		}
		if file == to || strings.HasPrefix(file, strings.TrimSuffix(to, "/")+"/") {
			return fmt.Errorf("%s lies in %s, whose content is removed first: give another folder as -o", input, r.to)
		}
	}
	return nil
}

// resolved is an absolute path without symbolic links, as far as it exists.
func resolved(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for rest := ""; ; {
		real, err := filepath.EvalSymlinks(absolute)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || absolute == filepath.Dir(absolute) {
			return "", err
		}
		absolute, rest = filepath.Dir(absolute), filepath.Join(filepath.Base(absolute), rest)
	}
}

// pack writes every file of the release, and their checksums last.
func (r *release) pack(out io.Writer) error {
	if err := os.RemoveAll(r.to); err != nil {
		return err
	}
	if err := os.MkdirAll(r.to, 0o755); err != nil {
		return err
	}
	for _, b := range r.binaries {
		name := fmt.Sprintf("moongate_%s_%s_%s", r.version, b.os, b.arch)
		if err := r.archive(b, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := r.sbom(b, filepath.Join(r.to, name+".cdx.json")); err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		if b.os != "linux" {
			continue
		}
		if err := r.debianPackage(b); err != nil {
			return fmt.Errorf("package for %s: %w", b.arch, err)
		}
	}
	for _, name := range []string{"moongate-crds", "moongate"} {
		if err := r.chart(name); err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
	}
	if r.image != "" {
		if err := r.manifest(); err != nil {
			return err
		}
		name := filepath.Join(r.to, fmt.Sprintf("moongate_%s_image", r.version))
		if err := copyTo(name+".tar", r.image, 0o644); err != nil {
			return err
		}
		if err := copyTo(name+".cdx.json", imageSBOM(r.image), 0o644); err != nil {
			return err
		}
	}
	return r.checksums(out)
}

// checksums writes SHA256SUMS in the format of sha256sum(1), and lists it.
func (r *release) checksums(out io.Writer) error {
	entries, err := os.ReadDir(r.to)
	if err != nil {
		return err
	}
	var lines []string
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.to, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), entry.Name()))
		fmt.Fprintf(out, "%s: %d KiB\n", entry.Name(), (len(content)+1023)/1024)
	}
	return r.write("SHA256SUMS", []byte(strings.Join(lines, "")))
}

// write writes one file of the release.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.to, name), content, 0o644)
}
