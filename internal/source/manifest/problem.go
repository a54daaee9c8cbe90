package manifest

import (
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Position is a place in a manifest file.
type Position struct {
	// File is the path as it was given, or as found below a given folder.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 means the file as a whole.
	Line int `json:"line,omitempty"`
}

// String returns "file:line", or what of it is known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Reason is a stable word for what is wrong.
type Reason string

// The reasons of a Problem.
const (
	Unreadable Reason = "Unreadable" // a file or folder cannot be read or watched
	Malformed  Reason = "Malformed"  // not YAML or JSON, or not recognizable as an object
	Foreign    Reason = "Foreign"    // it contains no Kubernetes object, for example the configuration of another program
	Invalid    Reason = "Invalid"    // an API server would reject the object
	Duplicate  Reason = "Duplicate"  // the object is already defined elsewhere
	Ignored    Reason = "Ignored"    // a kind that is not used
)

// Problem is something that is wrong with the input, and the remedy.
type Problem struct {
	Position
	Reason Reason `json:"reason"`
	// Object is what is known of it; for an ignored kind only group and kind.
	Object kind.ObjectKey `json:"object,omitzero"`
	// Field is a path such as spec.rules[0].matches[1].path.value; empty for the object as a whole.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Ignored is set for a kind that is not used: nothing is wrong with the object.
	Ignored bool `json:"ignored,omitempty"`
	// Warning is set for an ignored kind that routes or protects traffic, which is missing then.
	Warning bool `json:"warning,omitempty"`
	// Stray is set for a file that cannot be read and may be no manifest: a link that leads nowhere, or large data.
	Stray bool `json:"-"`
	// Kept is set, by the code that serves objects, if an earlier, valid version is still served.
	Kept bool `json:"kept,omitempty"`
	// Effect is what the object does until it is valid, if it is not just absent; see kind.Undecoded.
	Effect string `json:"effect,omitempty"`
}

// Missing reports whether something that the input asks for has no effect because of the problem: the object is invalid, or its kind,
// which routes or protects traffic, is not used. It is false for a warning about an object that is used, and for an ignored kind that
// does neither.
func (p Problem) Missing() bool { return p.Ignored == p.Warning }

// String returns one line: "routes.yaml:31: HTTPRoute default/web: spec.rules[0].name: what is wrong; what to do".
func (p Problem) String() string {
	var b strings.Builder
	for _, part := range []string{p.Position.String(), p.Object.String(), p.Field} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(p.Message)
	if p.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(p.Remedy)
	}
	if p.Kept {
		b.WriteString(" (the previous version stays in use)")
	} else if p.Effect != "" {
		b.WriteString(" (" + p.Effect + ")")
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}
