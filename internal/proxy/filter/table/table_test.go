package table

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
)

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCompile(t *testing.T) {
	x := filtertest.Exchange("GET /a HTTP/1.1\nHost: a.example")
	f, err := Compile(pack(t, &config.UrlRewrite{Hostname: "b.example"}), filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	f.Request(x)
	f, err = Compile(pack(t, &config.RequestRedirect{StatusCode: 308}), filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	reply := f.Request(x)
	if location, _ := reply.Header.Get("Location"); string(location) != "http://b.example/a" || reply.Status != 308 {
		t.Errorf("%d %s", reply.Status, location)
	}
}

func TestUnknownAndBroken(t *testing.T) {
	var e *filter.Error
	_, err := Compile(pack(t, &config.Backend{}), filter.Env{})
	if !errors.As(err, &e) || !strings.Contains(e.Filter, "moongate.config.v1.Backend") || e.Remedy == "" {
		t.Errorf("an unknown message: %v", err)
	}
	if _, err := Compile(nil, filter.Env{}); err == nil {
		t.Error("nil was compiled")
	}
	broken := pack(t, &config.UrlRewrite{})
	broken.Value = []byte{0xff}
	if _, err := Compile(broken, filter.Env{}); err == nil || !strings.Contains(err.Error(), "UrlRewrite") {
		t.Errorf("a broken message: %v", err)
	}
}

// TestEveryFilterIsListed: each folder with a README is a filter, and each filter has
// a line in the table.
func TestEveryFilterIsListed(t *testing.T) {
	readmes, err := filepath.Glob("../*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var folders, names []string
	for _, r := range readmes {
		folders = append(folders, filepath.Base(filepath.Dir(r)))
	}
	for _, n := range Names() {
		names = append(names, strings.ToLower(n[strings.LastIndexByte(n, '.')+1:]))
	}
	if !slices.Equal(folders, names) {
		t.Errorf("folders %v, table %v", folders, names)
	}
}

// TestFiltersKnowNoOther: only this package imports a filter's folder.
func TestFiltersKnowNoOther(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		folder := filepath.Base(filepath.Dir(file))
		if folder == "table" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range Names() {
			name := strings.ToLower(n[strings.LastIndexByte(n, '.')+1:])
			if name != folder && strings.Contains(string(text), `/filter/`+name+`"`) {
				t.Errorf("%s imports the filter %s", file, name)
			}
		}
	}
}
