package manifest

import (
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Position is a place in a manifest file.
type Position struct {
	// File is the path as it was given, or found below a folder that was given.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 is the file as a whole.
	Line int `json:"line,omitempty"`
}

// String is "file:line", or what of it is known.
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
	Malformed  Reason = "Malformed"  // not YAML or JSON, or not recognisable as an object
	Foreign    Reason = "Foreign"    // nothing in it is of an object of Kubernetes, as in the configuration of another program
	Invalid    Reason = "Invalid"    // an API server would refuse the object
	Duplicate  Reason = "Duplicate"  // the object is defined elsewhere already
	Ignored    Reason = "Ignored"    // a kind that is not used
)

// Problem is one thing that is wrong with the input, and what to do about it.
type Problem struct {
	Position
	Reason Reason `json:"reason"`
	// Object is what is known of it; of an ignored kind only group and kind.
	Object kind.ObjectKey `json:"object,omitzero"`
	// Field is a path such as spec.rules[0].matches[1].path.value; empty for the whole.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Ignored is set for a kind that is not used: nothing is wrong with the object.
	Ignored bool `json:"ignored,omitempty"`
	// Warning is set for an ignored kind that asks for traffic to be routed or protected: that is lost.
	Warning bool `json:"warning,omitempty"`
	// Kept is set if an earlier, valid version stays served; by whoever serves it.
	Kept bool `json:"kept,omitempty"`
	// Effect is what the object does until it is valid, where it is not only absent; see kind.Undecoded.
	Effect string `json:"effect,omitempty"`
}

// String is one line: "routes.yaml:31: HTTPRoute default/web: spec.rules[0].name: what is wrong; what to do".
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
