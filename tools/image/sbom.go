package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// bundleModule has the certificates of public authorities.
const bundleModule = "golang.org/x/crypto/x509roots/fallback"

// sbomName is the file beside an archive that has its bill of materials.
func sbomName(archive string) string {
	return strings.TrimSuffix(archive, filepath.Ext(archive)) + ".cdx.json"
}

// bill collects the components of an image, each once, and who needs which.
type bill struct {
	components []cyclonedx.Component
	needs      []cyclonedx.Dependency
}

func (b *bill) add(c cyclonedx.Component) (ref string) {
	if !slices.ContainsFunc(b.components, func(have cyclonedx.Component) bool { return have.BOMRef == c.BOMRef }) {
		b.components = append(b.components, c)
	}
	return c.BOMRef
}

func (b *bill) depend(ref string, on []string) {
	b.needs = append(b.needs, cyclonedx.Dependency{Ref: ref, Dependencies: &on})
}

// writeSBOM writes the bill of materials of an image in CycloneDX's JSON: the images for each architecture by their digests, what Go's linker recorded in
// the program of each, and the certificates.
func writeSBOM(file string, o options, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	certificates, err := bundleVersion()
	if err != nil {
		return err
	}
	var b bill
	var images []string
	bundled := b.add(module(bundleModule, certificates))
	for i, of := range o.binaries {
		program, err := b.program(o, of)
		if err != nil {
			return err
		}
		image := b.add(container(o, manifest.Manifests[i].Digest, of.arch))
		b.depend(image, []string{program, bundled})
		images = append(images, image)
	}
	main := container(o, digest, "")
	b.depend(main.BOMRef, images)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: o.created.Format(time.RFC3339), Component: &main}
	bom.Components, bom.Dependencies = &b.components, &b.needs
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

// container is an image, or the index of all for the architecture "", by its digest.
func container(o options, digest v1.Hash, arch string) cyclonedx.Component {
	at := strings.LastIndex(o.name, ":")
	repository, tag := o.name[:at], o.name[at+1:]
	url := fmt.Sprintf("pkg:oci/%s@%s%%3A%s?", repository[strings.LastIndex(repository, "/")+1:], digest.Algorithm, digest.Hex)
	if arch != "" {
		url += "arch=" + arch + "&"
	}
	url += "repository_url=" + strings.ReplaceAll(repository, ":", "%3A") + "&tag=" + tag
	return cyclonedx.Component{
		BOMRef: digest.String(), Type: cyclonedx.ComponentTypeContainer, Name: repository, Version: tag, PackageURL: url,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest.Hex}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
}

// program is the binary for one architecture with the modules that it was really built from, not those that go.mod allows.
func (b *bill) program(o options, of binary) (ref string, err error) {
	info, err := buildinfo.ReadFile(of.file)
	if err != nil {
		return "", err
	}
	ref = b.add(cyclonedx.Component{
		BOMRef: "moongate-" + of.arch, Type: cyclonedx.ComponentTypeApplication, Name: "moongate", Version: o.version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + o.version + "?goarch=" + of.arch + "&goos=linux",
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	})
	std := module("std", strings.TrimPrefix(info.GoVersion, "go"))
	std.Version = info.GoVersion
	modules := []string{b.add(std)}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		modules = append(modules, b.add(module(dep.Path, dep.Version)))
	}
	b.depend(ref, modules)
	return ref, nil
}

func module(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}

// bundleVersion is the version of the certificates that this program packs.
func bundleVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, dep := range info.Deps {
			if dep.Path == bundleModule {
				return dep.Version, nil
			}
		}
	}
	return "", errors.New("this program does not know the version of " + bundleModule + ": build it with modules")
}
