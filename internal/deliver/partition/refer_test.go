package partition

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/config"
)

// keyed is a field of a .proto file with the comment beside or above it.
var keyed = regexp.MustCompile(`(?m)((?:^\s*//.*\n)*)^\s*(?:repeated |optional )?string (\w+) = \d+;[ \t]*(//.*)?$`)

// TestEveryReferenceIsKnown reads the .proto files: a field that is said to hold keys of Backends, Certificates or Authorities
// must have a name by which it is found. So a new filter with a backend cannot be forgotten.
func TestEveryReferenceIsKnown(t *testing.T) {
	files, err := filepath.Glob("../../config/*.proto")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range keyed.FindAllStringSubmatch(string(text), -1) {
			name, comment := m[2], m[1]+m[3]
			if name == "key" {
				continue // its own, or that of the Resource it belongs to by definition
			}
			for word, kind := range map[string]config.Kind{"Backend": config.KindBackend, "Certificate": config.KindCertificate, "Authorities": config.KindAuthorities} {
				if !strings.Contains(comment, word+".key") && !regexp.MustCompile(`[Kk]eys of `+word).MatchString(comment) {
					continue
				}
				found++
				if kinds := referring[protoreflect.Name(name)]; len(kinds) == 0 || kinds[0] != kind {
					t.Errorf("%s: field %s holds keys of %ss, but references are not looked for in fields of that name: call it %q, or add it to referring",
						filepath.Base(path), name, word, strings.ToLower(word))
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d fields with references were found: this test reads the .proto files wrongly", found)
	}
}

// TestEveryKindHasAPlace: a new kind of Resource is either looked at by project, or reached by reference.
func TestEveryKindHasAPlace(t *testing.T) {
	reached := map[string]bool{"listener": true, "route": true, "l4_route": true, "ticket_keys": true, "rate_limit_service": true}
	for _, kinds := range referring {
		for _, kind := range kinds {
			reached[strings.ToLower(kind.String())] = true
		}
	}
	for f := range fields((*config.Resource)(nil).ProtoReflect().Descriptor()) {
		if !reached[string(f.Name())] {
			t.Errorf("no Gateway would ever get a %s: place it in project, or let something refer to it", f.Name())
		}
	}
}

// TestUserTextIsNoReference: text that looks like a key gives no access.
func TestUserTextIsNoReference(t *testing.T) {
	p := New()
	p.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/other/secret/80"}}},
		{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: "Secret/other/secret"}}},
		{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/a/l", Gateway: "n/a", Hostname: "Secret/other/secret"}}},
		{Kind: &config.Resource_Route{Route: &config.Route{Key: "r", Name: "Service/other/secret/80", Attachments: []*config.Attachment{{Listener: "n/a/l"}},
			Rules: []*config.Rule{{Name: "Service/other/secret/80", Matches: []*config.Match{{Path: &config.PathMatch{Value: "Secret/other/secret"},
				Headers: []*config.ValueMatch{{Name: "backend", Value: "Service/other/secret/80"}}}}}}}}},
	}})
	if part := p.Part("n/a"); part.Len() != 2 {
		t.Errorf("%d resources, want the listener and the route alone: %v", part.Len(), part.All().Upserts)
	}
}
