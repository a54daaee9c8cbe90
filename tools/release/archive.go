package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
)

// archive packs a binary with its licence and README into NAME.tar.gz, below a folder of that name.
func (r *release) archive(b binary, name string) error {
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zipped)
	for _, f := range []struct {
		from, to string
		mode     int64
	}{
		{b.file, "moongate", 0o755},
		{filepath.Join(r.root, "LICENSE"), "LICENSE", 0o644},
		{filepath.Join(r.root, "README.md"), "README.md", 0o644},
	} {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Name: name + "/" + f.to, Mode: f.mode, Size: int64(len(content)), ModTime: r.created, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return r.write(name+".tar.gz", packed.Bytes())
}
