package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// syntaxError is the error of a document that cannot be read at all.
type syntaxError struct {
	line   int // in the chunk, from 1; 0 means unknown
	reason string
	remedy string
}

func (e *syntaxError) Error() string { return e.reason }

// parse parses a chunk as JSON if it looks like JSON, else as YAML, and returns the roots of its documents, without empty ones.
func parse(text []byte) ([]*yaml.Node, *syntaxError) {
	start := bytes.TrimLeft(text, " \t\r\n")
	if len(start) > 0 && start[0] == '{' {
		nodes, jsonErr := parseJSON(text)
		if jsonErr == nil {
			return nodes, nil
		}
		// A flow mapping ({a: b}) is YAML and not JSON.
		if nodes, err := parseYAML(text); err == nil {
			return nodes, nil
		}
		return nil, jsonErr
	}
	return parseYAML(text)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// fromParser matches the errors whose lines the library counts from 0, not from 1.
var fromParser = regexp.MustCompile(`^did not find expected (',' or|node|'-'|key|<)|^found (duplicate|incompatible|undefined)`)

func parseYAML(text []byte) (roots []*yaml.Node, failed *syntaxError) {
	// The YAML library is known to panic on some malicious input.
	defer func() {
		if p := recover(); p != nil {
			roots, failed = nil, &syntaxError{reason: fmt.Sprintf("not valid YAML: %v", p), remedy: yamlRemedy("")}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			message := err.Error()
			m := yamlLine.FindStringSubmatch(message)
			line := 0
			if m != nil {
				line, _ = strconv.Atoi(m[1])
				message = message[len(m[0]):]
				if fromParser.MatchString(message) {
					line = min(line+1, bytes.Count(bytes.TrimSpace(text), []byte("\n"))+1)
				}
			}
			failed := &syntaxError{line: line, reason: "not valid YAML: " + message, remedy: yamlRemedy(message)}
			if at := dashes.FindIndex(text); at != nil {
				failed.line, failed.remedy = lineAt(text, at[0]), `write three dashes, "---", between two objects`
			} else if at := invalidUTF8(text); at >= 0 && strings.Contains(message, "UTF-8") {
				failed.line, failed.remedy = lineAt(text, at), "save the file in the encoding UTF-8"
			}
			return nil, failed
		}
		if len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null" {
			roots = append(roots, doc.Content[0])
		}
	}
}

// dashes matches a line that was meant to separate two documents.
var dashes = regexp.MustCompile(`(?m)^(?:--|-{4,})[ \t]*\r?$`)

// lineAt returns the line of an offset, from 1.
func lineAt(text []byte, at int) int { return bytes.Count(text[:at], []byte("\n")) + 1 }

// invalidUTF8 returns the index of the first byte that is not UTF-8, or -1.
func invalidUTF8(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

func yamlRemedy(message string) string {
	switch {
	case strings.Contains(message, "alphabetic or numeric character"): // of an anchor or alias
		return `put a value that begins with * or & in quotes, as in "*.example.com"`
	case strings.Contains(message, "cannot start any token"), strings.Contains(message, "tab character"):
		return "indent with spaces, not tabs, and put a value that begins with a special character in quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		return `check the indentation, and put a value that contains ": " in quotes`
	case strings.Contains(message, "did not find expected"):
		return "check the indentation of this and the previous line"
	case strings.Contains(message, "unexpected end of stream"):
		return "close the quote or bracket that begins here"
	case strings.Contains(message, "control characters"):
		return "remove the control characters; a manifest is text"
	case strings.Contains(message, "unknown anchor"):
		return "define the anchor in the same document, or put a value that begins with * in quotes"
	}
	return "correct this line or the one before"
}

// JSON returns the values of a text as YAML nodes; several may follow each other. It reports false if the text is not JSON objects.
func JSON(text []byte) ([]*yaml.Node, bool) {
	start := bytes.TrimLeft(text, " \t\r\n")
	if len(start) == 0 || start[0] != '{' {
		return nil, false
	}
	nodes, err := parseJSON(text)
	return nodes, err == nil
}

// parseJSON builds the same tree as for YAML from one or more JSON values.
func parseJSON(text []byte) ([]*yaml.Node, *syntaxError) {
	r := &jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1}
	r.dec.UseNumber()
	var roots []*yaml.Node
	for {
		n, err := r.value(0)
		if errors.Is(err, io.EOF) && r.depth == 0 {
			return roots, nil
		}
		if err != nil {
			reason := err.Error()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(reason, "unexpected end") {
				reason = "the value is not complete"
			}
			r.advance(jsonErrorOffset(err, r.dec.InputOffset()))
			return nil, &syntaxError{line: r.line, reason: "not valid JSON: " + reason, remedy: "complete or correct it near this line"}
		}
		if n.Tag != "!!null" {
			roots = append(roots, n)
		}
	}
}

func jsonErrorOffset(err error, otherwise int64) int64 {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Offset
	}
	return otherwise
}

type jsonReader struct {
	text  []byte
	dec   *json.Decoder
	at    int64 // offset up to which lines are counted
	line  int
	depth int // of the value that is being read
}

func (r *jsonReader) advance(to int64) {
	to = min(to, int64(len(r.text)))
	if to > r.at {
		r.line += bytes.Count(r.text[r.at:to], []byte("\n"))
		r.at = to
	}
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	r.depth = depth
	if depth > maxDepth {
		return nil, errDepth
	}
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	r.advance(r.dec.InputOffset())
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if token == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.dec.More() {
			child, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		r.depth = depth + 1 // an end of input here is inside this value
		_, err := r.dec.Token()
		return n, err
	case string:
		n.Tag, n.Value, n.Style = "!!str", token, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", token.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(token)
	default:
		n.Tag = "!!null"
	}
	return n, nil
}
