package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestInlineCommands: commands of Moongate and make that documents mention in a sentence exist, and so do their flags.
func TestInlineCommands(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	flagPattern := regexp.MustCompile(`^--?[a-z][a-z0-9-]*`)
	listed := regexp.MustCompile(`(?m)^  (?:-[a-zA-Z], +|    +)(--[a-z][a-z0-9-]*)`)
	short := regexp.MustCompile(`(?m)^  (-[a-zA-Z]), `)
	flags := map[string][]string{} // by verb
	flagsOf := func(verb string) []string {
		if flags[verb] == nil {
			stdout, stderr, code := moongate(verb, "--help")
			if code != 0 || !strings.Contains(stdout, "moongate "+verb) {
				t.Errorf("moongate %s: exit code %d, %s", verb, code, stderr)
			}
			flags[verb] = []string{"-h", "--help"}
			for _, m := range append(listed.FindAllStringSubmatch(stdout, -1), short.FindAllStringSubmatch(stdout, -1)...) {
				flags[verb] = append(flags[verb], m[1])
			}
		}
		return flags[verb]
	}
	span := regexp.MustCompile("`([^`\n]+)`")
	checked := 0
	documents, err := testkit.Documents(repository)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range documents {
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			words := strings.Fields(m[1])
			if len(words) < 2 {
				continue
			}
			switch words[0] {
			case "make":
				targets := slices.DeleteFunc(words[1:], func(w string) bool { return strings.Contains(w, "=") || strings.HasPrefix(w, "-") })
				if len(targets) > 0 && !strings.Contains(m[1], " -C ") && !strings.Contains(string(makefile), "\n"+strings.TrimSuffix(targets[0], ";")+":") {
					t.Errorf("%s: `%s`: no such target", path, m[1])
				}
				checked++
			case "moongate":
				if strings.HasPrefix(words[1], "-") || strings.ToUpper(words[1]) == words[1] {
					continue
				}
				known := flagsOf(words[1])
				for _, w := range words[2:] {
					if flag := flagPattern.FindString(strings.TrimLeft(w, "(")); flag != "" && !slices.Contains(known, flag) {
						t.Errorf("%s: `%s`: moongate %s has no flag %s", path, m[1], words[1], flag)
					}
				}
				checked++
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d commands were found", checked)
	}
}
