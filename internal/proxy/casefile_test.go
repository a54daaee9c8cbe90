package proxy

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// caseFile is a file of testdata: what it is about, and sections. testdata/smuggling/README.md
// describes the format.
type caseFile struct {
	name     string
	about    string
	sections []section
}

// section begins with a line "-- name --" or "-- name: argument --".
type section struct {
	name, argument string
	lines          []string
}

// readCases reads all files of a folder of testdata.
func readCases(t testing.TB, folder string) (all []caseFile) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := caseFile{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
			head, isHead := strings.CutPrefix(line, "-- ")
			head, hasEnd := strings.CutSuffix(head, " --")
			switch {
			case isHead && hasEnd:
				s := section{name: head}
				s.name, s.argument, _ = strings.Cut(head, ": ")
				c.sections = append(c.sections, s)
			case len(c.sections) == 0:
				c.about += line + "\n"
			default:
				s := &c.sections[len(c.sections)-1]
				s.lines = append(s.lines, line)
			}
		}
		all = append(all, c)
	}
	return all
}

// section is the first of a name.
func (c *caseFile) section(name string) (s section, ok bool) {
	for _, s := range c.sections {
		if s.name == name {
			return s, true
		}
	}
	return section{}, false
}

// bytes are the lines of a section as they are sent: each ends in CRLF unless its last byte is a backslash.
func (s *section) bytes() ([]byte, error) {
	var b strings.Builder
	for _, line := range s.lines {
		goesOn := strings.HasSuffix(line, `\`) && !strings.HasSuffix(line, `\\`)
		text, err := unescape(strings.TrimSuffix(line, `\`), !goesOn && strings.HasSuffix(line, `\`))
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
		if !goesOn {
			b.WriteString("\r\n")
		}
	}
	return []byte(b.String()), nil
}

// unescape replaces what Go writes in quotes for bytes that cannot be seen; {n*text} repeats text.
// odd: a backslash was cut off that belongs to the text.
func unescape(line string, odd bool) (string, error) {
	if odd {
		line += `\`
	}
	for {
		before, rest, ok := strings.Cut(line, "{")
		n, after, ok2 := strings.Cut(rest, "*")
		text, after, ok3 := strings.Cut(after, "}")
		times, err := strconv.Atoi(n)
		if !ok || !ok2 || !ok3 || err != nil {
			break
		}
		line = before + strings.Repeat(text, times) + after
	}
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`)
	if err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	return text, nil
}

// pathsCase is a conversation for FuzzPaths.
type pathsCase struct{ client, backend, script []byte }

// loadPaths reads testdata/paths: sections client, backend (once for each answer) and script (once for each run).
func loadPaths(t testing.TB) (all []pathsCase) {
	for _, c := range readCases(t, "paths") {
		var p pathsCase
		var scripts []string
		for i, s := range c.sections {
			b, err := s.bytes()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			switch s.name {
			case "client":
				p.client = b
			case "backend":
				if p.backend != nil {
					p.backend = append(p.backend, nextText...)
				}
				p.backend = append(p.backend, b...)
			case "script":
				scripts = append(scripts, s.lines...)
			default:
				t.Fatalf("%s: section %d, %s, is none of client, backend and script", c.name, i, s.name)
			}
		}
		for _, script := range scripts {
			b, err := unescape(script, false)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			p.script = []byte(b)
			all = append(all, p)
		}
	}
	return all
}

// nextText stands between what the backend answers to one request and to the next.
const nextText = "\n===\n"
