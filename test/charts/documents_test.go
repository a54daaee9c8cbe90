package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
)

// TestDocuments tries what the documents tell people to do, as far as that goes without a
// cluster: helm's commands are rendered, files must be there, YAML must be what it says.
func TestDocuments(t *testing.T) {
	tried := map[string]int{}
	for _, document := range []string{"README.md", "docs/install.md", "charts/moongate/README.md", "charts/moongate-crds/README.md"} {
		text := read(t, root, document)
		var commands []string
		for _, block := range fenced(text, "sh") {
			commands = append(commands, strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n")...)
		}
		for _, span := range regexp.MustCompile("`((?:helm install|kubectl apply|make) [^`]*)`").FindAllStringSubmatch(text, -1) {
			commands = append(commands, span[1])
		}
		for _, command := range commands {
			words := strings.Fields(command)
			if len(words) == 0 {
				continue
			}
			tried[words[0]]++
			switch words[0] {
			case "helm":
				helm(t, document, words[1:])
			case "make":
				if !strings.Contains(read(t, root, "Makefile"), "\n"+strings.TrimSuffix(words[1], ";")+":") {
					t.Errorf("%s: %s: no such target", document, command)
				}
			case "kubectl":
				for i, word := range words {
					if word != "-f" {
						continue
					}
					if _, err := os.Stat(filepath.Join(root, words[i+1])); err != nil {
						t.Errorf("%s: %s: %v", document, command, err)
					}
				}
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(document), link[1])); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
	if tried["helm"] < 5 || tried["kubectl"] < 3 || tried["make"] < 3 {
		t.Errorf("commands found: %v", tried)
	}
	for _, block := range fenced(read(t, root, "docs/install.md"), "yaml") {
		if strings.HasPrefix(block, "apiVersion:") {
			decode(t, block)
		} else {
			mustRender(t, "moongate", parse(t, block)).objects(t)
		}
	}
}

// helm does what an install would, with its --set, and refuses flags that nobody checked.
func helm(t *testing.T, document string, words []string) {
	t.Helper()
	if words[0] == "uninstall" || words[0] == "upgrade" || words[0] == "rollback" {
		return
	}
	values, where := map[string]any{}, ""
	for i := 0; i < len(words); i++ {
		switch word := words[i]; word {
		case "install", "--create-namespace", "--take-ownership":
		case "--namespace":
			i++
		case "--set":
			i++
			if err := strvals.ParseInto(strings.Trim(words[i], "'"), values); err != nil { // as a shell reads it
				t.Errorf("%s: %q: %v", document, words, err)
			}
		default:
			if strings.HasPrefix(word, "-") {
				t.Errorf("%s: %q: the test does not know %s", document, words, word)
			}
			where = word
		}
	}
	name, ok := strings.CutPrefix(where, "charts/")
	if !ok {
		t.Errorf("%s: %q names no chart", document, words)
		return
	}
	if _, err := render(t, name, values); err != nil {
		t.Errorf("%s: %q: %v", document, words, err)
	}
}

// fenced are the code blocks of a Markdown text in a language.
func fenced(text, language string) []string {
	var blocks []string
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}
