// Package filtertest runs the examples in the filters' README files, and contains what their tests share. It exists so
// that every documented example works.
//
// An example is three fenced blocks in this order: yaml (the filter as in an HTTPRoute), then two of http (the message
// before and after). Only tests may import this package.
package filtertest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// HeaderFields is an HTTPHeaderFilter as the user writes it.
type HeaderFields struct {
	Set    []struct{ Name, Value string } `yaml:"set"`
	Add    []struct{ Name, Value string } `yaml:"add"`
	Remove []string                       `yaml:"remove"`
}

// Path is an HTTPPathModifier as the user writes it. The matched prefix is part of the rule: the examples name it in a
// comment "# prefix: /a".
type Path struct {
	Type               string `yaml:"type"`
	ReplaceFullPath    string `yaml:"replaceFullPath"`
	ReplacePrefixMatch string `yaml:"replacePrefixMatch"`
}

// Exchange returns the request of an example, at an http listener on port 80.
func Exchange(text string) *filter.Exchange {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	first := strings.Fields(lines[0])
	x := &filter.Exchange{Scheme: "http", ListenerPort: 80, Request: &message.Request{Method: []byte(first[0])}}
	path, query, hasQuery := strings.Cut(first[1], "?")
	x.Request.Path, x.Request.Query, x.Request.HasQuery = []byte(path), []byte(query), hasQuery
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			x.Request.Host = []byte(value)
			continue
		}
		x.Request.Header.Append(message.Field{Name: []byte(name), Value: []byte(value), Line: []byte(line + "\r\n")})
	}
	return x
}

// Request returns the request of x as text.
func Request(x *filter.Exchange) string {
	r := x.Request
	query := ""
	if r.HasQuery {
		query = "?" + string(r.Query)
	}
	return fmt.Sprintf("%s %s%s HTTP/1.1\nHost: %s\n%s", r.Method, r.Path, query, r.Host, fields(&r.Header))
}

// Response parses the response of an example into x.
func Response(x *filter.Exchange, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	x.Response = &message.Response{}
	x.Response.Status, _ = strconv.Atoi(strings.Fields(lines[0])[1])
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		x.Response.Header.Add([]byte(name), []byte(value))
	}
}

// ResponseText returns a response as text.
func ResponseText(status int, header *message.Fields) string {
	return fmt.Sprintf("HTTP/1.1 %d\n%s", status, fields(header))
}

func fields(section *message.Fields) string {
	var b strings.Builder
	for i := range section.Len() {
		f := section.At(i)
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

var block = regexp.MustCompile("(?ms)^```(yaml|http)\n(.*?)^```$")

// Example is one example of a README.
type Example struct {
	YAML, Before, After string
}

// Examples returns the examples in README.md of the current folder; at least one.
func Examples(t *testing.T) []Example {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := block.FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 || len(found)%3 != 0 {
		t.Fatalf("README.md has %d blocks of yaml and http, want 3 per example", len(found))
	}
	var examples []Example
	for ; len(found) > 0; found = found[3:] {
		if found[0][1] != "yaml" || found[1][1] != "http" || found[2][1] != "http" {
			t.Fatalf("README.md: the blocks of an example are yaml, http, http; not %s, %s, %s", found[0][1], found[1][1], found[2][1])
		}
		examples = append(examples, Example{found[0][2], found[1][2], found[2][2]})
	}
	return examples
}

// Decode decodes the part of an example's filter with the key of its type ("requestRedirect") into into. Fields that
// into does not have are an error.
func Decode(t *testing.T, e Example, key string, into any) {
	t.Helper()
	var list []map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(e.YAML), &list); err != nil || len(list) != 1 {
		t.Fatalf("want a list of one filter: %v\n%s", err, e.YAML)
	}
	node, ok := list[0][key]
	if !ok || list[0]["type"].Value == "" {
		t.Fatalf("no type or no %s in\n%s", key, e.YAML)
	}
	text, err := yaml.Marshal(&node)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%v in\n%s", err, e.YAML)
	}
}

// Prefix returns the prefix that an example's rule matched.
func (e Example) Prefix() string {
	_, rest, _ := strings.Cut(e.YAML, "# prefix: ")
	prefix, _, _ := strings.Cut(rest, "\n")
	return prefix
}

// Same compares two messages as text.
func Same(t *testing.T, what, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// AllocatesNothing runs a filter's function often on one exchange, whose memory has grown.
func AllocatesNothing(t *testing.T, x *filter.Exchange, run func(*filter.Exchange)) {
	t.Helper()
	if n := testing.AllocsPerRun(1000, func() {
		x.Scratch = x.Scratch[:0]
		run(x)
	}); n != 0 {
		t.Errorf("%v allocations per exchange, want 0", n)
	}
}
