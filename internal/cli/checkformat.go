package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/status/show"
)

// fault is a problem, a warning or an ignored kind, reported by an object's status or by the source of the manifests.
type fault struct {
	Level string // "error", "warning" or "note", as in SARIF
	Rule  string // the reason of the condition; else "problem", "warning" or "ignored"
	File  string // "" if not known
	Line  int    // from 1; 0 if not known
	Text  string // object, field, message and remedy
}

// faultsOf returns what check has found, sorted by file and line, without what is only a consequence of another fault.
func faultsOf(off *offline, objects []*show.Object) []fault {
	var all []fault
	for _, o := range objects {
		for _, c := range o.Complaints() {
			if c.Follows {
				continue
			}
			at := off.positionOf(o, c.Field())
			text := c.Object + ": "
			if c.Where != "" {
				text += c.Where + ": "
			}
			all = append(all, fault{c.Severity(), c.Reason, at.File, at.Line, oneLine(text + c.Message)})
		}
	}
	for _, p := range off.status.Problems {
		f := fault{"error", markOf(p), p.File, p.Line, ""}
		switch {
		case p.Warning:
			f.Level = "warning"
		case p.Ignored:
			f.Level = "note"
		}
		p.File = "" // it is printed next to the text
		f.Text = oneLine(problemLine(p))
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return all
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// printFaultsText prints a line for each, in the format of compilers, so that editors can find the place.
func printFaultsText(w io.Writer, faults []fault) error {
	for _, f := range faults {
		place := ""
		if f.File != "" {
			place = f.File + ": "
			if f.Line > 0 {
				place = fmt.Sprintf("%s:%d: ", f.File, f.Line)
			}
		}
		if _, err := fmt.Fprintf(w, "%s%s: %s\n", place, f.Level, f.Text); err != nil {
			return err
		}
	}
	return nil
}

// Workflow commands of GitHub require certain characters to be escaped, more of them in properties than in the message.
var (
	commandData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printFaultsGitHub prints a workflow command for each.
func printFaultsGitHub(w io.Writer, faults []fault) error {
	for _, f := range faults {
		command := f.Level
		if command == "note" {
			command = "notice"
		}
		var properties []string
		if f.File != "" {
			properties = append(properties, "file="+commandProperty.Replace(filepath.ToSlash(f.File)))
			if f.Line > 0 {
				properties = append(properties, fmt.Sprintf("line=%d", f.Line))
			}
		}
		properties = append(properties, "title="+commandProperty.Replace("moongate check: "+f.Rule))
		if _, err := fmt.Fprintf(w, "::%s %s::%s\n", command, strings.Join(properties, ","), commandData.Replace(f.Text)); err != nil {
			return err
		}
	}
	return nil
}

// The parts of a SARIF 2.1.0 log that are used here.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"` // never null, which would mean that the run failed
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		ArtifactLocation struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
)

func printFaultsSARIF(w io.Writer, faults []fault) error {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "moongate", Rules: []sarifRule{}}
	var ids []string
	for _, f := range faults {
		result := sarifResult{RuleID: f.Rule, Level: f.Level, Message: sarifText{f.Text}}
		if f.File != "" {
			var at sarifPhysical
			at.ArtifactLocation.URI = fileURI(f.File)
			if f.Line > 0 {
				at.Region = &sarifRegion{f.Line}
			}
			result.Locations = []sarifLocation{{at}}
		}
		run.Results = append(run.Results, result)
		ids = append(ids, f.Rule)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{id})
	}
	return printAs(w, "json", sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}

// fileURI returns a path as a URI reference: relative to the working directory of the command if the path is.
func fileURI(path string) string {
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}
