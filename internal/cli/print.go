package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/admin"
)

// printAs writes v as "json" or "yaml".
func printAs(w io.Writer, format string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if format == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// problemLine returns a problem of the file source as one line.
func problemLine(p admin.Problem) string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	for _, part := range []string{p.Object, p.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Message)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	if p.Kept {
		b.WriteString(" (the previous version stays in use)")
	} else if p.Effect != "" {
		b.WriteString(" (" + p.Effect + ")")
	}
	return oneLine(b.String())
}
