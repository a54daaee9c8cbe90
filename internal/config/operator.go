package config

import (
	"regexp"
	"strings"
)

// operatorPattern matches an operator in a text. Percent signs are frequent in HTML, so everything that it does not match stands for
// itself.
var operatorPattern = regexp.MustCompile(`%%|%([A-Z][A-Z0-9_]*)(\(([^()%]*)\))?(:([0-9]+))?%`)

// operatorText is a parsed operator, such as %REQ(NAME?OTHER):20%.
type operatorText struct {
	whole, name, argument, length string
	// parenthesis and limit are the argument and the length with their punctuation; "" if the operator has none.
	parenthesis, limit string
}

// bare reports whether the operator is only a name.
func (o *operatorText) bare() bool { return o.parenthesis == "" && o.limit == "" }

// splitOperators calls literal or operator for each part of a text, in order. "%%" is one literal percent sign. It stops at the
// first error that operator returns.
func splitOperators(text string, literal func(string), operator func(operatorText) error) error {
	var pending strings.Builder
	flush := func() {
		if pending.Len() > 0 {
			literal(pending.String())
			pending.Reset()
		}
	}
	at := 0
	for _, m := range operatorPattern.FindAllStringSubmatchIndex(text, -1) {
		pending.WriteString(text[at:m[0]])
		at = m[1]
		group := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		o := operatorText{whole: group(0), name: group(1), parenthesis: group(2), argument: group(3), limit: group(4), length: group(5)}
		if o.whole == "%%" {
			pending.WriteByte('%')
			continue
		}
		flush()
		if err := operator(o); err != nil {
			return err
		}
	}
	pending.WriteString(text[at:])
	flush()
	return nil
}
