package proofs

import (
	"fmt"
	"slices"
	"strings"
)

// document is the page, in the repository.
const document = "docs/conformance.md"

const intro = `<!-- Made from test/conformance/proofs/proofs.yaml by make conformance-page; edit that. -->
# Conformance

This page lists every feature of Gateway API v1.7.0 for gateways, and every field of the kinds below, with the tests that show how Moongate
implements it, or with what you see if it is not supported. What is not supported is reported by a condition and never ignored silently, except where this page says so.

- Names in code without a link are tests of the [official suite](../test/conformance/README.md), which runs unmodified.
- A **golden** case contains objects, and the configuration and statuses that they must result in. A **case** is served, and requests
  are sent to it over sockets. A **test** is written in Go.

A test of this page fails if a feature or field has no row, if a row names a test that does not exist, if no case of a row
sets its field, or if the features that the GatewayClass claims differ.
`

// Page is the document for a table that is right.
func (t *Table) Page(features, supported []string) string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## Features\n\n| feature | proved by |\n|---|---|\n")
	rows := map[string]Row{}
	for _, row := range t.Features {
		rows[row.Feature] = row
	}
	for _, f := range features {
		row := rows[f]
		row.Proofs = slices.Concat(row.Proofs, officialProofs(f, supported))
		if len(row.Proofs) > most {
			row.Proofs = append(row.Proofs[:most:most], proof(fmt.Sprintf("and %d more", len(row.Proofs)-most)))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", f, row.cell())
	}
	heading := ""
	for _, row := range t.Fields {
		name, field, _ := strings.Cut(row.Field, ".")
		if name != heading {
			heading = name
			fmt.Fprintf(&b, "\n## %s\n\n| field | proved by |\n|---|---|\n", name)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", field, row.cell())
	}
	b.WriteString("\n## Where the specification contradicts itself\n\n| subject | one place | another place | what Moongate does | proved by |\n|---|---|---|---|---|\n")
	for _, d := range t.Decisions {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.Topic, d.Says, d.And, d.Taken, links(d.Proofs))
	}
	return b.String()
}

// most is how many proofs of a feature are shown: core features have dozens.
const most = 8

func (r Row) cell() string {
	if r.NotSupported != "" {
		return "**not supported**: " + r.NotSupported + " (" + links(r.Proofs) + ")"
	}
	return links(r.Proofs)
}

func links(proofs []proof) string {
	var out []string
	for _, p := range proofs {
		what, name := p.split()
		switch what {
		case official:
			out = append(out, "`"+name+"`")
		case golden, request:
			out = append(out, fmt.Sprintf("%s [%s](../%s)", what, name, p.file()))
		case goTest:
			out = append(out, fmt.Sprintf("test [%s](../%s)", name[strings.LastIndexByte(name, '.')+1:], p.file()))
		default:
			out = append(out, string(p))
		}
	}
	return strings.Join(out, ", ")
}
