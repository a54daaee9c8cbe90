package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user that runs everything, by the number that "nonroot" images agree on.
const nonroot = "65532"

// file is an entry of a layer; a folder where its path ends in a slash.
type file struct {
	path    string
	mode    int64
	content []byte
}

// build makes the index of one image for each binary.
func build(o options) (v1.ImageIndex, error) {
	base, err := layer(baseFiles())
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range o.binaries {
		content, err := os.ReadFile(b.file)
		if err != nil {
			return nil, err
		}
		if err := checkStatic(content, b); err != nil {
			return nil, err
		}
		program, err := layer([]file{{"usr/", 0o755, nil}, {"usr/bin/", 0o755, nil}, {"usr/bin/moongate", 0o755, content}})
		if err != nil {
			return nil, err
		}
		image, err := assemble(o, b.arch, base, program)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}},
		})
	}
	return index, nil
}

func assemble(o options, arch string, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range layers {
		var err error
		if image, err = mutate.Append(image, mutate.Addendum{Layer: l, MediaType: types.OCILayer, History: v1.History{
			Created: v1.Time{Time: o.created}, CreatedBy: "make image",
		}}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: o.created}
	config.Config = v1.Config{
		User:       nonroot + ":" + nonroot,
		WorkingDir: "/",
		Entrypoint: []string{"/usr/bin/moongate"},
		Env:        []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "Moongate",
			"org.opencontainers.image.description": "A gateway for the Kubernetes Gateway API",
			"org.opencontainers.image.source":      "https://github.com/moongate-dev/moongate",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     o.version,
			"org.opencontainers.image.revision":    o.revision,
		},
	}
	return mutate.ConfigFile(image, config)
}

// baseFiles is what every binary stands on.
func baseFiles() []file {
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:" + nonroot + ":\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + nonroot + ":" + nonroot + ":nonroot:/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
	}
}

// authorities are the public ones, in PEM. Those that are trusted under conditions only
// are left out: a file of certificates cannot tell a condition.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a buffer does not fail.
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.Bytes()
}

// layer packs files. Owner and time of all are zero, so that the bytes depend on the files alone.
func layer(files []file) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		header := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.path[len(f.path)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// checkStatic refuses a program that would not run on an empty base, or is for another machine.
func checkStatic(content []byte, b binary) error {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s is no program for Linux: %w", b.file, err)
	}
	machine, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[b.arch]
	if !ok {
		return fmt.Errorf("architecture %q is not known; amd64 and arm64 are", b.arch)
	}
	if program.Machine != machine {
		return fmt.Errorf("%s is for %v, not for %s", b.file, program.Machine, b.arch)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically, and the image has nothing to link it with: build it with CGO_ENABLED=0", b.file)
		}
	}
	return nil
}
