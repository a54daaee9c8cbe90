package image

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	// maxFiles bounds the files of an image: each is a mount of its own in a container.
	maxFiles = 1000
	// maxBytes bounds what an archive or a layer unpacks to: a few bytes can say "1 TiB of zeros".
	maxBytes = 2 << 30
)

// Archive unpacks an OCI archive (a tar file of an OCI image layout, as builders
// write it) into the store and maps name to it, for this machine's architecture.
// Of directories only the files matter, and a file's owner is root.
func (s Store) Archive(name, archive string) error {
	image, err := s.unpack(name, archive)
	if err != nil {
		return fmt.Errorf("image %s: %s: %w", name, archive, err)
	}
	return s.Add(image)
}

func (s Store) unpack(name, archive string) (Image, error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return Image{}, err
	}
	layout, err := os.MkdirTemp(s.Dir, "layout-")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(layout)
	file, err := os.Open(archive)
	if err != nil {
		return Image{}, err
	}
	defer file.Close()
	if err := extract(file, layout, maxBytes); err != nil {
		return Image{}, err
	}
	l := ociLayout{layout}
	manifest, digest, err := l.manifest()
	if err != nil {
		return Image{}, err
	}
	var config ociConfig
	if err := l.read(manifest.Config.Digest, &config); err != nil {
		return Image{}, err
	}
	// Containers of an image that went before keep their files.
	root := filepath.Join(s.Dir, "unpacked-"+strings.ReplaceAll(digest, ":", "-"))
	if _, err := os.Stat(root); err != nil {
		whole := filepath.Join(layout, "root")
		if err := l.layers(manifest, whole); err != nil {
			return Image{}, err
		}
		if err := os.Rename(whole, root); err != nil {
			return Image{}, err
		}
	}
	files, err := filesOf(root)
	if err != nil {
		return Image{}, err
	}
	c := config.Config
	image := Image{Name: name, Files: files, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, WorkingDir: c.WorkingDir, User: c.User}
	if len(image.Entrypoint) == 0 && len(image.Cmd) > 0 {
		image.Entrypoint, image.Cmd = image.Cmd[:1], image.Cmd[1:]
	}
	return image, nil
}

// The parts of https://github.com/opencontainers/image-spec that are used here.
type ociDescriptor struct {
	MediaType string
	Digest    string
	Platform  struct{ OS, Architecture string }
}

type ociManifest struct {
	Manifests []ociDescriptor // of an index
	Config    ociDescriptor
	Layers    []ociDescriptor
}

type ociConfig struct {
	Config struct {
		User, WorkingDir     string
		Env, Entrypoint, Cmd []string
	} `json:"config"`
}

type ociLayout struct{ dir string }

func (l ociLayout) blob(digest string) string {
	algorithm, hash, _ := strings.Cut(digest, ":")
	return filepath.Join(l.dir, "blobs", filepath.Base(algorithm), filepath.Base(hash))
}

func (l ociLayout) read(digest string, into any) error {
	content, err := os.ReadFile(l.blob(digest))
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// manifest follows indexes to the manifest for this machine.
func (l ociLayout) manifest() (ociManifest, string, error) {
	var current ociManifest
	content, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	if err != nil {
		return current, "", err
	}
	if err := json.Unmarshal(content, &current); err != nil {
		return current, "", fmt.Errorf("index.json: %w", err)
	}
	digest := ""
	for range 3 { // an index in an index is as deep as builders go
		if len(current.Layers) > 0 {
			return current, digest, nil
		}
		digest = ""
		for _, m := range current.Manifests {
			if m.Platform.Architecture == runtime.GOARCH && m.Platform.OS == "linux" || m.Platform.Architecture == "" {
				digest = m.Digest
				break
			}
		}
		if digest == "" {
			break
		}
		current = ociManifest{}
		if err := l.read(digest, &current); err != nil {
			return current, "", err
		}
	}
	if len(current.Layers) > 0 {
		return current, digest, nil
	}
	return current, "", fmt.Errorf("no image for linux/%s", runtime.GOARCH)
}

func (l ociLayout) layers(manifest ociManifest, root string) error {
	for _, layer := range manifest.Layers {
		if err := l.layer(layer, root); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

func (l ociLayout) layer(layer ociDescriptor, root string) error {
	file, err := os.Open(l.blob(layer.Digest))
	if err != nil {
		return err
	}
	defer file.Close()
	switch {
	case strings.HasSuffix(layer.MediaType, "gzip"):
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			return err
		}
		return extract(unzipped, root, maxBytes)
	case strings.HasSuffix(layer.MediaType, "tar"):
		return extract(file, root, maxBytes)
	}
	return fmt.Errorf("its media type %s is not implemented", layer.MediaType)
}

// extract writes a tar file's files and links below dir, and nothing outside of
// it, nor more than limit bytes.
func extract(from io.Reader, dir string, limit int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries := tar.NewReader(from)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if name == "" {
			continue
		}
		if limit -= header.Size; limit < 0 {
			return errors.New("unpacks to too much")
		}
		if err := extractOne(root, name, header, entries); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

func extractOne(root *os.Root, name string, header *tar.Header, content io.Reader) error {
	base, dir := path.Base(name), path.Dir(name)
	if hidden, ok := strings.CutPrefix(base, ".wh."); ok { // the layer takes away what one below it has
		if hidden == ".wh..opq" {
			return root.RemoveAll(dir)
		}
		return root.RemoveAll(path.Join(dir, hidden))
	}
	if header.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(header.Mode).Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), name)
	}
	return fmt.Errorf("type %q is not implemented", header.Typeflag)
}

// filesOf maps every file below root, so that whatever else a container has
// mounted finds its place between them. A link stands for the file it leads to.
func filesOf(root string) (map[string]string, error) {
	inside, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	files := map[string]string{}
	err = fs.WalkDir(inside.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if len(files) == maxFiles {
			return fmt.Errorf("has more than %d files", maxFiles)
		}
		source := filepath.Join(root, name)
		if entry.Type()&fs.ModeSymlink != 0 {
			// Through inside, no link leads out; absolute ones do, and are refused.
			info, err := inside.Stat(name)
			if err != nil || info.IsDir() {
				return fmt.Errorf("the link /%s is not implemented: only relative ones to files are", name)
			}
			if source, err = filepath.EvalSymlinks(source); err != nil {
				return err
			}
		}
		files["/"+name] = source
		return nil
	})
	return files, err
}
