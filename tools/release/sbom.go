package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the bill of materials of a binary in CycloneDX's JSON, from what Go's linker recorded in it: what it
// was really built from, not what go.mod allows.
func (r *release) sbom(b binary, to string) error {
	info, err := buildinfo.ReadFile(b.file)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	main := cyclonedx.Component{
		BOMRef: "moongate", Type: cyclonedx.ComponentTypeApplication, Name: "moongate", Version: "v" + r.version.String(),
		PackageURL: "pkg:golang/" + info.Main.Path + "@v" + r.version.String(),
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &main}
	components := []cyclonedx.Component{{
		BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + info.GoVersion[len("go"):],
	}}
	refs := []string{"go"}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		url := "pkg:golang/" + dep.Path + "@" + dep.Version
		components = append(components, cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: dep.Path, Version: dep.Version, PackageURL: url,
		})
		refs = append(refs, url)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: "moongate", Dependencies: &refs}}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

// imageSBOM is the file beside the archive of an image that has its bill of materials.
func imageSBOM(archive string) string {
	return strings.TrimSuffix(archive, filepath.Ext(archive)) + ".cdx.json"
}

// checkImageSBOM refuses the bill of materials of another image than that of a digest, such as one of an earlier build.
func checkImageSBOM(file, digest string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(in, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bom.Metadata == nil || bom.Metadata.Component == nil || bom.Metadata.Component.BOMRef != digest {
		return fmt.Errorf("%s is not the bill of materials of the image %s: build the image anew", file, digest)
	}
	return nil
}
