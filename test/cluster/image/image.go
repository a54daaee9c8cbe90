// Package image says what a container image's name stands for on this machine:
// local static programs and the files beside them. It exists because the test
// cluster pulls nothing; what no one has mapped is an image that cannot be pulled.
package image

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Image is what a name stands for.
type Image struct {
	// Name is a repository, then any tag of it matches, or a repository with tag
	// or digest, then only that does, and before the former.
	Name string `json:"name"`
	// Files maps an absolute path in the container to one of the machine's files or folders.
	Files      map[string]string `json:"files"`
	Entrypoint []string          `json:"entrypoint"`
	Cmd        []string          `json:"cmd,omitempty"`
	Env        []string          `json:"env,omitempty"`
	WorkingDir string            `json:"workingDir,omitempty"`
	// User is "uid" or "uid:gid"; empty is root.
	User string `json:"user,omitempty"`
}

// ErrUnknown is a name that nothing is mapped to.
var ErrUnknown = errors.New("no such image")

// Store is a folder with one file per image, so that a command may add one while
// the node runs.
type Store struct{ Dir string }

// Add maps image.Name, in place of what it stood for.
func (s Store) Add(image Image) error {
	if err := image.check(); err != nil {
		return fmt.Errorf("image %s: %w", image.Name, err)
	}
	content, err := json.MarshalIndent(image, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	// A reader meets the old file or the new one, never half of one.
	file := s.file(image.Name)
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Get finds the image for a container's reference.
func (s Store) Get(reference string) (Image, error) {
	for _, name := range []string{reference, Repository(reference)} {
		content, err := os.ReadFile(s.file(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Image{}, err
		}
		var image Image
		if err := json.Unmarshal(content, &image); err != nil {
			return Image{}, fmt.Errorf("image %s: %w", name, err)
		}
		return image, nil
	}
	return Image{}, fmt.Errorf("%w: %s; map it with `cluster image %s BINARY`", ErrUnknown, reference, Repository(reference))
}

func (s Store) file(name string) string {
	return filepath.Join(s.Dir, strings.NewReplacer("/", "+", ":", "=").Replace(name)+".json")
}

// Repository is reference without tag and digest.
func Repository(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")
	if colon := strings.LastIndexByte(reference, ':'); colon > strings.LastIndexByte(reference, '/') {
		reference = reference[:colon]
	}
	return reference
}

func (i Image) check() error {
	if i.Name == "" {
		return errors.New("has no name")
	}
	if len(i.Entrypoint) == 0 {
		return errors.New("has no entrypoint")
	}
	for target, source := range i.Files {
		if !filepath.IsAbs(target) || !filepath.IsAbs(source) {
			return fmt.Errorf("%s=%s: both paths must be absolute", target, source)
		}
		if _, err := os.Stat(source); err != nil {
			return err
		}
	}
	return static(i.Files[i.Entrypoint[0]])
}

// static refuses a dynamically linked program: the container has no linker, and
// the kernel would only say "no such file".
func static(program string) error {
	if program == "" {
		return nil // in one of the folders
	}
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s is not a program: %w", program, err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked: build it with CGO_ENABLED=0", program)
		}
	}
	return nil
}
