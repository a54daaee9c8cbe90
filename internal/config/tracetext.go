package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const traceOperatorPrefix = "TRACE_OPERATOR_"

// TraceOperators returns the names of the operators that ParseTraceText accepts, sorted.
func TraceOperators() (names []string) {
	for n, name := range TraceOperator_name {
		if n != 0 {
			names = append(names, "%"+strings.TrimPrefix(name, traceOperatorPrefix)+"%")
		}
	}
	names = append(names, "%REQ(NAME)%", "%RESP(NAME)%")
	slices.Sort(names)
	return names
}

// ParseTraceText parses a text with operators. It returns an error that names the operator if an operator is unknown or if its
// argument is not a valid field name. "%%" is one percent sign, and a percent sign that begins no operator stands for itself.
func ParseTraceText(text string) (parts []*TraceText, err error) {
	err = splitOperators(text, func(literal string) { parts = append(parts, TraceLiteral(literal)) }, func(o operatorText) error {
		p, err := traceOperator(o)
		parts = append(parts, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return parts, nil
}

func traceOperator(o operatorText) (*TraceText, error) {
	if o.name != "REQ" && o.name != "RESP" || o.parenthesis == "" {
		n, known := TraceOperator_value[traceOperatorPrefix+o.name]
		if !known || n == 0 || !o.bare() {
			return nil, fmt.Errorf("%q is not known", o.whole)
		}
		return &TraceText{Part: &TraceText_Operator{Operator: TraceOperator(n)}}, nil
	}
	field, other, has := strings.Cut(strings.ToLower(o.argument), "?")
	names := IsToken
	if o.name == "REQ" {
		names = isRequestField
	}
	if !names(field) || has && !names(other) {
		return nil, fmt.Errorf("%q names no header field", o.whole)
	}
	p := &TraceText{Part: &TraceText_ResponseHeader{ResponseHeader: field}, Other: other}
	if o.name == "REQ" {
		p.Part = &TraceText_RequestHeader{RequestHeader: field}
	}
	if o.limit != "" {
		n, err := strconv.ParseUint(o.length, 10, 31)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q has a length that cannot be used", o.whole)
		}
		p.Length = uint32(n)
	}
	return p, nil
}

// TraceLiteral returns a TraceText without operators.
func TraceLiteral(text string) *TraceText {
	return &TraceText{Part: &TraceText_Literal{Literal: text}}
}
