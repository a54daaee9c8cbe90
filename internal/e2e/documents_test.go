package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// repository is its root.
const repository = "../.."

// block is a fenced code block of a document.
type block struct {
	document string // path from the root of the repository
	line     int    // of its opening fence
	language string // empty where the fence names none
	content  string
}

// fence is a code block of a document.
var fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")

// otherBlock is a code block of another form: between tildes, or a command that is indented by four spaces.
var otherBlock = regexp.MustCompile(`(?m)^~~~|^    (?:make|moongate|curl|kubectl|helm|go) .*$`)

// anyFence begins or ends a code block.
var anyFence = regexp.MustCompile("(?m)^ *```")

// blocksOf returns the code blocks of a document, which is named by its path from the root of the repository.
func blocksOf(t testing.TB, document string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, document))
	if err != nil {
		t.Fatal(err)
	}
	return blocksIn(document, string(text))
}

func blocksIn(document, text string) (all []block) {
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		all = append(all, block{document, strings.Count(text[:at[0]], "\n") + 1, text[at[2]:at[3]], text[at[4]:at[5]]})
	}
	return all
}

// fenced returns the code blocks of a document in a language; at least one.
func fenced(t testing.TB, document, language string) []block {
	t.Helper()
	blocks := slices.DeleteFunc(blocksOf(t, document), func(b block) bool { return b.language != language })
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s block", document, language)
	}
	return blocks
}

// ran holds the blocks that tests of this package have used, for checkDocuments.
var ran struct {
	sync.Mutex
	blocks map[string]bool
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.document, b.line) }

// use returns the content of the block, and records that a test serves it, runs it or compares it with what is printed.
func (b block) use() string {
	ran.Lock()
	defer ran.Unlock()
	if ran.blocks == nil {
		ran.blocks = map[string]bool{}
	}
	ran.blocks[b.String()] = true
	return b.content
}

// elsewhere lists the blocks that no test of this package runs: those of a document (a pattern of path.Match) that contain a text, and the test that runs
// them, as folder and name, or why there is nothing to run.
var elsewhere = []struct{ document, has, test, reason string }{
	{document: "internal/proxy/filter/*/README.md", test: "internal/proxy/filter/cors TestREADME"},
	{document: "docs/tasks/global-rate-limits.md", has: "ACL SETUSER", test: "internal/proxy/ratelimit TestUserOfRedis"},
	{document: "docs/tasks/review-a-change.md", has: "--from old", test: "internal/cli TestTaskReviewAChange"},
	{document: "docs/tasks/review-a-change.md", has: "+++ after", test: "internal/cli TestTaskReviewAChange"},
	{document: "docs/tasks/review-a-change.md", has: "--expect", test: "internal/cli TestTaskReviewAChange"},
	{document: "docs/install.md", has: "make image", reason: "skopeo and ctr need a registry and containerd; tools/image tests the image that the target makes"},
	{document: "docs/install.md", has: "make release", reason: "it takes minutes and installs a package; tools/release tests what the target makes, and installs the package with dpkg"},
	{document: "docs/install.md", has: "kill -USR2", reason: "pkill would find other gateways of this machine; TestReplace sends the signal"},
	{document: "docs/performance.md", has: "bench", reason: "it takes an hour and a quiet machine"},
	{document: "docs/performance.md", has: "make scale", reason: "it takes half an hour; CI runs make scale-small"},
	{document: "*.md", has: "kubectl ", test: "test/documents TestDocuments"},
	{document: "docs/*.md", has: "kubectl ", test: "test/documents TestDocuments"},
	{document: "docs/*.md", has: " --kube", test: "test/documents TestDocuments"},
	{document: "docs/*.md", has: "helm ", test: "test/documents TestDocuments"},
	{document: "docs/tasks/*.md", has: "kubectl ", test: "test/documents TestDocuments"},
	{document: "docs/tasks/*.md", has: " --kube", test: "test/documents TestDocuments"},
	{document: "charts/*/README.md", has: "helm ", test: "test/documents TestDocuments"},
	{document: "docs/install.md", has: "kind: Gateway\n", test: "test/documents TestDocuments"},
	{document: "docs/install.md", has: "gatewayClass:\n", test: "test/documents TestDocuments"},
	{document: "docs/install.md", has: "completion bash", test: "test/documents TestDocuments"},
	{document: "docs/install.md", has: "completion fish", test: "test/documents TestDocuments"},
	{document: "docs/install.md", has: "completion zsh", reason: "no zsh is at hand; what is completed is tested through the shells' common interface in internal/cli"},
	{document: "test/*/README.md", has: "make ", reason: "how the tests that need a cluster are run, by targets of make that CI runs"},
	{document: "docs/architecture.md", has: "──▶", reason: "a drawing"},
	{document: "docs/kubernetes.md", has: "──▶", reason: "a drawing"},
	{document: "docs/tasks/admission-control.md", has: "total - successes", reason: "a formula"},
}

// fullRun reports whether all tests of the package are run, so that each block must have been used.
func fullRun() bool {
	for _, name := range []string{"run", "skip", "list", "bench", "fuzz"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// unused returns the code blocks of all documents that no test runs, and the entries of elsewhere that are for no block or name no test.
func unused() (all []string) {
	needed := map[int]bool{}
	documents, err := testkit.Documents(repository)
	if err != nil {
		return []string{err.Error()}
	}
	for document, text := range documents {
		if hidden := otherBlock.FindString(text); hidden != "" {
			all = append(all, fmt.Sprintf("%s has a code block without a fence of three backticks, which no test sees: %s", document, strings.TrimSpace(hidden)))
		}
		if fences := len(anyFence.FindAllString(text, -1)); fences != 2*len(blocksIn(document, text)) {
			all = append(all, fmt.Sprintf("%s has %d fences, of which some begin or end no code block", document, fences))
		}
		for _, b := range blocksIn(document, text) {
			found := ran.blocks[b.String()]
			for i, e := range elsewhere {
				if ok, _ := filepath.Match(e.document, document); ok && strings.Contains(b.content, e.has) {
					needed[i], found = true, true
				}
			}
			if !found {
				all = append(all, fmt.Sprintf("%s: no test runs the block of %q that begins with %q", b, b.language, strings.SplitN(b.content, "\n", 2)[0]))
			}
		}
	}
	for i, e := range elsewhere {
		switch folder, test, ok := strings.Cut(e.test, " "); {
		case !needed[i]:
			all = append(all, fmt.Sprintf("the list of blocks that are run elsewhere has one of %s with %q, which is not there", e.document, e.has))
		case ok == (e.reason != ""):
			all = append(all, fmt.Sprintf("%s: either a test or a reason is needed", e.document))
		case ok && !hasTest(folder, test):
			all = append(all, fmt.Sprintf("%s: %s has no %s", e.document, folder, test))
		}
	}
	return all
}

// hasTest reports whether the tests of a folder have one of that name.
func hasTest(folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(repository, folder, "*_test.go"))
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

// checkDocuments fails a run of all tests after which a code block of any document has been used by none. A new block needs a test.
func checkDocuments(code int) int {
	if code != 0 || !fullRun() {
		return code
	}
	for _, problem := range unused() {
		fmt.Fprintln(os.Stderr, problem)
		code = 1
	}
	return code
}

// TestBlocks: blocks of all forms are found, and one that no test has used is reported.
func TestBlocks(t *testing.T) {
	blocks := blocksIn("a.md", "text\n```\nplain\n```\n- item\n  ```sh\n  curl\n  ```\n```yaml\na: b\n```\n")
	var got []string
	for _, b := range blocks {
		got = append(got, fmt.Sprint(b, " ", b.language, " ", b.content))
	}
	if want := []string{"a.md:2  plain\n", "a.md:6 sh   curl\n", "a.md:9 yaml a: b\n"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	ran.Lock()
	defer ran.Unlock()
	before := ran.blocks
	defer func() { ran.blocks = before }()
	ran.blocks = nil
	if all := unused(); !slices.ContainsFunc(all, func(p string) bool {
		return strings.HasPrefix(p, "README.md:") && strings.Contains(p, `no test runs the block of "yaml"`)
	}) {
		t.Errorf("that nobody has used the README's manifest is not among %q", all)
	}
}
