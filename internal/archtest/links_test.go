package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// documents are the Markdown files of the repository by their paths below its root, with what they say.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all, err := testkit.Documents(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	fence = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	span  = regexp.MustCompile("`[^`\n]*`")
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	title = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors are the names by which the headings of a document can be linked to, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range title.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		heading := link.ReplaceAllString(m[1], "")
		var b strings.Builder
		for _, r := range strings.ToLower(heading) {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			}
		}
		names[b.String()] = true
	}
	return names
}

// TestLinks checks that the files and headings that documents link to are there.
func TestLinks(t *testing.T) {
	all := documents(t)
	checked := 0
	for document, text := range all {
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := document
			if file != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(document), file))
				if _, err := os.Stat(filepath.Join(root, to)); err != nil {
					t.Errorf("%s links to %s, which is not there", document, m[1])
					continue
				}
			}
			if anchor == "" {
				continue
			}
			target, ok := all[to]
			if !ok {
				t.Errorf("%s links to %s, which has no headings", document, m[1])
			} else if !anchors(target)[anchor] {
				t.Errorf("%s links to %s: no heading has that name", document, m[1])
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d links were found", checked)
	}
}

// TestIndex checks that docs/README.md links to every page, so that none is found by chance only.
func TestIndex(t *testing.T) {
	all := documents(t)
	linked := map[string]bool{}
	for _, m := range link.FindAllStringSubmatch(all["docs/README.md"], -1) {
		file, _, _ := strings.Cut(m[1], "#")
		linked[filepath.ToSlash(filepath.Join("docs", file))] = true
	}
	for document := range all {
		if strings.HasPrefix(document, "docs/") && document != "docs/README.md" && !linked[document] {
			t.Errorf("docs/README.md does not link to %s", document)
		}
	}
}
