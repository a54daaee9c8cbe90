package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	secretFileText = "a file with what the keys of persistent sessions and TLS tickets are made of, made where it is missing: gateways that share it understand each other's, and a restart keeps them (default: a secret of this process)"
	// secretSize is the length in bytes of a secret that is made here, and the least that a file must have.
	secretSize = 32
	// maxSecretSize bounds what is read of a file that may be anything.
	maxSecretSize = 4 << 10
)

// readSecret returns what keys are derived from: the content of --secret-file, which is made where it is missing, or without one a secret of this process.
func readSecret(path string) ([]byte, error) {
	fresh := make([]byte, secretSize)
	rand.Read(fresh) // which cannot fail
	if path == "" {
		return fresh, nil
	}
	if err := makeSecretFile(path, fresh); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, usage("--secret-file: %v; name a file that can be read, or made", err)
	}
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() < secretSize || info.Size() > maxSecretSize) {
		return nil, usage("--secret-file: %s is no file of %d to %d bytes; remove it, and one is made", path, secretSize, maxSecretSize)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, usage("--secret-file: %s has mode %#o, so that users other than its owner may read or change it; run chmod 600 on it", path, info.Mode().Perm())
	}
	var kept []byte
	if err == nil {
		kept, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usage("--secret-file: %v; name a file that can be read, or made", err)
	}
	return kept, nil
}

// makeSecretFile makes the file with all of its content at once, whoever else does so at the same time; fs.ErrExist is that it is there.
func makeSecretFile(path string, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is a second name by then, or of no use
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return os.Link(f.Name(), path) // which replaces nothing
}
