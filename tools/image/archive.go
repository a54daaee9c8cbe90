package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// write packs the index into an archive, under its name as the tools that import it look for it.
func write(archive, name string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(archive), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := name[strings.LastIndexAny(name, ":/")+1:]
	if err := root.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          name,
	})); err != nil {
		return err
	}
	// A reader meets the old archive or the new one, never half of one.
	packed := filepath.Join(dir, "packed")
	if err := pack(dir, packed); err != nil {
		return err
	}
	return os.Rename(packed, archive)
}

// pack writes the files below dir in the order of their names, without times or owners.
func pack(dir, to string) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir || path == to {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return add(w, path, filepath.ToSlash(rel), entry)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

func add(w *tar.Writer, path, name string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return w.WriteHeader(&tar.Header{Name: name + "/", Mode: 0o755, Typeflag: tar.TypeDir, Format: tar.FormatUSTAR})
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// report says what was written: the digest by which the image is pulled, and what is
// pulled for each architecture.
func report(out io.Writer, archive, name string, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s@%s\n", archive, name, digest)
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		content, err := image.Manifest()
		if err != nil {
			return err
		}
		size := content.Config.Size
		for _, l := range content.Layers {
			size += l.Size
		}
		fmt.Fprintf(out, "  %s: %.1f MiB to pull\n", m.Platform, float64(size)/(1<<20))
	}
	return nil
}
