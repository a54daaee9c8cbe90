package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

type entry struct {
	name, content, link string
	kind                byte // 0 is a file
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		header := &tar.Header{Name: e.name, Typeflag: kind, Mode: 0o755, Size: int64(len(e.content)), Linkname: e.link}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// builder puts an archive together.
type builder struct {
	t       *testing.T
	entries []entry
}

func (b *builder) blob(content []byte) map[string]any {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	b.entries = append(b.entries, entry{name: "blobs/sha256/" + digest, content: string(content)})
	return map[string]any{"digest": "sha256:" + digest}
}

func (b *builder) json(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		b.t.Fatal(err)
	}
	return content
}

// image adds a manifest of these layers, the second one compressed.
func (b *builder) image(architecture string, layers ...[]byte) map[string]any {
	var descriptors []any
	for i, layer := range layers {
		kind := "application/vnd.oci.image.layer.v1.tar"
		if i == 1 {
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			w.Write(layer)
			w.Close()
			layer, kind = zipped.Bytes(), kind+"+gzip"
		}
		descriptor := b.blob(layer)
		descriptor["mediaType"] = kind
		descriptors = append(descriptors, descriptor)
	}
	config := b.blob(b.json(map[string]any{"config": map[string]any{
		"User": "65532", "Entrypoint": []string{"/bin/program"}, "Cmd": []string{"run"}, "Env": []string{"A=b"}, "WorkingDir": "/bin",
	}}))
	manifest := b.blob(b.json(map[string]any{"config": config, "layers": descriptors}))
	manifest["platform"] = map[string]any{"os": "linux", "architecture": architecture}
	return manifest
}

// write ends the archive with an index of an index, as builders of several platforms do.
func (b *builder) write(manifests ...map[string]any) string {
	inner := b.blob(b.json(map[string]any{"manifests": manifests}))
	b.entries = append(b.entries, entry{name: "index.json", content: string(b.json(map[string]any{"manifests": []any{inner}}))})
	file := filepath.Join(b.t.TempDir(), "image.tar")
	if err := os.WriteFile(file, pack(b.t, b.entries...), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// program is the head of a program that needs no linker.
func program(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	if err := binary.Write(&out, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestArchive(t *testing.T) {
	b := &builder{t: t}
	foreign := b.image("none", pack(t, entry{name: "foreign", content: "x"}))
	own := b.image(runtime.GOARCH,
		pack(t, entry{name: "bin/", kind: tar.TypeDir}, entry{name: "./bin/program", content: program(t)},
			entry{name: "etc/old", content: "old"}, entry{name: "gone/a", content: "a"}, entry{name: "gone/b", content: "b"}),
		pack(t, entry{name: "etc/.wh.old"}, entry{name: "gone/.wh..wh..opq"}, entry{name: "etc/new", content: "new"},
			entry{name: "etc/link", link: "new", kind: tar.TypeSymlink}, entry{name: "etc/hard", link: "etc/new", kind: tar.TypeLink}))
	archive := b.write(foreign, own)
	store := Store{Dir: filepath.Join(t.TempDir(), "images")}
	for range 2 { // the second time everything is there
		if err := store.Archive("example.org/a", archive); err != nil {
			t.Fatal(err)
		}
	}
	image, err := store.Get("example.org/a:v3")
	if err != nil {
		t.Fatal(err)
	}
	if image.User != "65532" || image.WorkingDir != "/bin" || !slices.Equal(image.Entrypoint, []string{"/bin/program"}) ||
		!slices.Equal(image.Cmd, []string{"run"}) || !slices.Equal(image.Env, []string{"A=b"}) {
		t.Errorf("%+v", image)
	}
	want := map[string]string{"/bin/program": program(t), "/etc/new": "new", "/etc/link": "new", "/etc/hard": "new"}
	for name, source := range image.Files {
		content, err := os.ReadFile(source)
		if err != nil || string(content) != want[name] {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if left, _ := filepath.Glob(filepath.Join(store.Dir, "layout-*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestArchivesThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		layer []byte
		says  string
	}{
		"a link out":       {pack(t, entry{name: "a", link: "../../x", kind: tar.TypeSymlink}), "link"},
		"an absolute link": {pack(t, entry{name: "a", link: "/etc/passwd", kind: tar.TypeSymlink}), "link"},
		"through a link":   {pack(t, entry{name: "a", link: "..", kind: tar.TypeSymlink}, entry{name: "a/b", content: "b"}), "escapes"},
		"a device":         {pack(t, entry{name: "a", kind: tar.TypeChar}), "not implemented"},
		"cut off":          {pack(t, entry{name: "a", content: strings.Repeat("a", 2000)})[:1500], "EOF"},
	} {
		b := &builder{t: t}
		store := Store{Dir: filepath.Join(t.TempDir(), "images")}
		if err := store.Archive("a", b.write(b.image(runtime.GOARCH, test.layer))); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	b := &builder{t: t}
	err := Store{Dir: t.TempDir()}.Archive("a", b.write(b.image("none", pack(t, entry{name: "a"}))))
	if err == nil || !strings.Contains(err.Error(), "no image for linux/") {
		t.Errorf("another architecture: %v", err)
	}
}

// FuzzExtract lets nothing out of the folder.
func FuzzExtract(f *testing.F) {
	f.Add(pack(f, entry{name: "../a", content: "a"}, entry{name: "b/.wh..wh..opq"}, entry{name: ".wh.."}, entry{name: "c", link: "../..", kind: tar.TypeSymlink}))
	f.Add(pack(f, entry{name: ".wh..wh..opq"}, entry{name: "x/.wh...", content: "a"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "dir")
		_ = extract(bytes.NewReader(archive), dir, 1<<16)
		if left, err := os.ReadDir(parent); err != nil || len(left) > 1 || len(left) == 1 && left[0].Name() != "dir" {
			t.Errorf("%v %v", left, err)
		}
	})
}
