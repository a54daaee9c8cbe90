package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// chart packs a chart of the repository as the release's version. What it depends on has that version too.
func (r *release) chart(name string) error {
	c, err := loader.Load(filepath.Join(r.root, "charts", name))
	if err != nil {
		return err
	}
	r.setVersion(c)
	if name == "moongate" {
		c.Metadata.AppVersion = "v" + r.version.String() // the image's tag
	}
	c.StampModTimes(r.created)
	_, err = chartutil.Save(c, r.to)
	return err
}

func (r *release) setVersion(c *chart.Chart) {
	c.Metadata.Version = r.version.String()
	for _, dependency := range c.Metadata.Dependencies {
		dependency.Version = r.version.String()
	}
	dependencies := slices.SortedFunc(slices.Values(c.Dependencies()), func(a, b *chart.Chart) int { return strings.Compare(a.Name(), b.Name()) })
	for _, dependency := range dependencies {
		r.setVersion(dependency)
	}
	c.SetDependencies(dependencies...) // Helm loads them in the order of a map
}

// manifest writes deploy/moongate.yaml with the release's image, by its digest: the tag is for people.
func (r *release) manifest() error {
	name, digest, err := imageOf(r.image)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(r.root, "deploy/moongate.yaml"))
	if err != nil {
		return err
	}
	c, err := loader.Load(filepath.Join(r.root, "charts/moongate"))
	if err != nil {
		return err
	}
	repository, _, _ := strings.Cut(name, ":")
	old := repository + ":" + c.Metadata.AppVersion
	if !strings.Contains(string(content), old) {
		return fmt.Errorf("deploy/moongate.yaml does not name the image %s", old)
	}
	text := strings.ReplaceAll(string(content), old, repository+":v"+r.version.String()+"@"+digest)
	return r.write("moongate.yaml", []byte(text))
}

var sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// imageOf reads name and digest of the image in an archive in the OCI's layout.
func imageOf(archive string) (name, digest string, err error) {
	in, err := os.Open(archive)
	if err != nil {
		return "", "", err
	}
	defer in.Close()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return "", "", fmt.Errorf("%s has no index.json: is it an image?", archive)
		}
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", archive, err)
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct {
				Digest      string
				Annotations map[string]string
			}
		}
		if err := json.NewDecoder(r).Decode(&index); err != nil {
			return "", "", fmt.Errorf("%s: index.json: %w", archive, err)
		}
		if len(index.Manifests) != 1 {
			return "", "", fmt.Errorf("%s has %d images, want 1", archive, len(index.Manifests))
		}
		digest := index.Manifests[0].Digest
		if !sha256Digest.MatchString(digest) {
			return "", "", fmt.Errorf("%s has the digest %q, want sha256: and 64 hexadecimal digits", archive, digest)
		}
		return index.Manifests[0].Annotations["io.containerd.image.name"], digest, nil
	}
}
