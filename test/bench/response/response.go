// Package response reads whole HTTP/1.1 responses and compares them. It exists
// because a benchmark is only worth its figures when all contenders gave the same
// answers. It imports the standard library only.
package response

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
)

// Canonical is a response in the form in which it is compared: field names in lower
// case (RFC 9110 section 5.1: names are case-insensitive), field lines sorted.
type Canonical struct {
	StatusLine string
	Fields     []string
	Body       []byte
}

// Read takes one response off r. A body without Content-Length or chunked coding is
// an error: no contender has reason to make one out of the origin's.
func Read(r *bufio.Reader) (*Canonical, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, fmt.Errorf("status line: %w", err)
	}
	c := &Canonical{StatusLine: line}
	length, chunked := -1, false
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, fmt.Errorf("field line: %w", err)
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("field line %q has no colon", line)
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		c.Fields = append(c.Fields, name+": "+value)
		switch name {
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil || length < 0 {
				return nil, fmt.Errorf("Content-Length %q", value)
			}
		case "transfer-encoding":
			chunked = strings.EqualFold(value, "chunked")
		}
	}
	slices.Sort(c.Fields)
	if c.Body, err = readBody(r, length, chunked); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return c, nil
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return "", fmt.Errorf("line %q does not end in CRLF", line)
	}
	return text, nil
}

func readBody(r *bufio.Reader, length int, chunked bool) ([]byte, error) {
	switch {
	case chunked:
		body, err := io.ReadAll(httputil.NewChunkedReader(r))
		for line := "more"; err == nil && line != ""; { // the trailer section
			line, err = readLine(r)
		}
		return body, err
	case length < 0:
		return nil, fmt.Errorf("neither Content-Length nor chunked")
	}
	body := make([]byte, length)
	_, err := io.ReadFull(r, body)
	return body, err
}

// Without drops the given lines, each "name: value" in canonical form: differences
// that are expected and documented.
func (c *Canonical) Without(lines []string) *Canonical {
	fields := slices.DeleteFunc(slices.Clone(c.Fields), func(line string) bool {
		return slices.Contains(lines, line)
	})
	return &Canonical{StatusLine: c.StatusLine, Fields: fields, Body: c.Body}
}

// Head reads a request or response head in text form into canonical field lines, with
// the start line first.
func Head(text []byte) []string {
	start, rest, _ := strings.Cut(string(text), "\r\n")
	var fields []string
	for line := range strings.SplitSeq(rest, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields = append(fields, strings.ToLower(name)+": "+strings.Trim(value, " \t"))
		}
	}
	slices.Sort(fields)
	return append([]string{start}, fields...)
}

// Diff says how got differs from want, one line per difference; none when equal.
func Diff(want, got *Canonical) []string {
	diff := DiffLines(
		append([]string{want.StatusLine}, want.Fields...),
		append([]string{got.StatusLine}, got.Fields...))
	if !bytes.Equal(want.Body, got.Body) {
		diff = append(diff, diffBody(want.Body, got.Body))
	}
	return diff
}

func diffBody(want, got []byte) string {
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	return fmt.Sprintf("body: %d bytes, want %d; first difference at byte %d", len(got), len(want), at)
}

// DiffLines compares two lists of lines as multisets: "- line" is missing, "+ line"
// is too much.
func DiffLines(want, got []string) []string {
	count := map[string]int{}
	for _, line := range want {
		count[line]++
	}
	var diff []string
	for _, line := range got {
		if count[line]--; count[line] < 0 {
			diff = append(diff, "+ "+line)
		}
	}
	for _, line := range want {
		if count[line] > 0 {
			count[line]--
			diff = append(diff, "- "+line)
		}
	}
	return diff
}
