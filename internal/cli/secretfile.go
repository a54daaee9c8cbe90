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
	secretFileText = "file with the secret for the keys of persistent sessions and TLS session tickets; created if it does not exist. Gateways with the same file accept each other's sessions, and sessions survive a restart (default: a secret of this process)"
	// secretSize is the length in bytes of a generated secret, and the minimum length of the file.
	secretSize = 32
	// maxSecretSize limits how much is read of a file, which may be any file.
	maxSecretSize = 4 << 10
)

// readSecret returns the secret from which keys are derived: the content of --secret-file, which is created if it is missing, or a
// random secret of this process.
func readSecret(path string) ([]byte, error) {
	fresh := make([]byte, secretSize)
	rand.Read(fresh) // it never fails
	if path == "" {
		return fresh, nil
	}
	if err := makeSecretFile(path, fresh); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, usage("--secret-file: %v; name a file that can be read or created", err)
	}
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() < secretSize || info.Size() > maxSecretSize) {
		return nil, usage("--secret-file: %s is not a file of %d to %d bytes; remove it to have one created", path, secretSize, maxSecretSize)
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, usage("--secret-file: %s has mode %#o, so that users other than its owner may read or change it; run chmod 600 on it", path, info.Mode().Perm())
	}
	var kept []byte
	if err == nil {
		kept, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usage("--secret-file: %v; name a file that can be read or created", err)
	}
	return kept, nil
}

// makeSecretFile creates the file atomically with all its content, even if other processes try the same; it returns fs.ErrExist if
// the file exists.
func makeSecretFile(path string, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after Link it is a second name of the file, else it is not needed
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), err)
	}
	return os.Link(f.Name(), path) // it does not replace an existing file
}
