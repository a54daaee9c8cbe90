package config

import (
	"fmt"
	"strconv"
	"strings"
)

// BodyOperator is an operator in the body of a ResponseOverride. It stands for a value of the request or response.
type BodyOperator uint8

const (
	BodyText         BodyOperator = iota // literal text
	BodyResponseCode                     // %RESPONSE_CODE%: the status that is sent to the client
	BodyReason                           // %RESPONSE_CODE_DETAILS%: the reason word of the response
	BodyProtocol                         // %PROTOCOL%: HTTP/1.1, HTTP/1.0 or HTTP/2
	BodyRequestField                     // %REQ(NAME)%, %REQ(NAME?OTHER)%, or with :LENGTH after the parenthesis: a header field of the request
)

// BodyPart is a part of a ResponseOverride's body.
type BodyPart struct {
	Operator BodyOperator
	Text     string // of BodyText only
	// Name is the name of the field of BodyRequestField. Other is the field that is used if Name is absent, "" if none. Both are in
	// lower case. ":authority", ":method" and ":path" (with the query) are as the client sent them.
	Name, Other string
	Length      int // maximum length of the value in bytes; 0 means no limit
}

// BodyOperators lists the operators that ParseBody accepts, for error messages.
const BodyOperators = "%RESPONSE_CODE%, %RESPONSE_CODE_DETAILS%, %PROTOCOL% and %REQ(NAME)%"

// ParseBody parses the body of a ResponseOverride. It returns an error that names the operator if an operator is unknown (also one
// that Envoy has and Moongate does not), or if its argument is not a valid field name. "%%" is one percent sign.
func ParseBody(text string) (parts []BodyPart, err error) {
	err = splitOperators(text, func(literal string) { parts = append(parts, BodyPart{Text: literal}) }, func(o operatorText) error {
		p, err := bodyOperator(o)
		parts = append(parts, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return parts, nil
}

func bodyOperator(o operatorText) (p BodyPart, err error) {
	switch {
	case o.name == "RESPONSE_CODE" && o.bare():
		p.Operator = BodyResponseCode
	case o.name == "RESPONSE_CODE_DETAILS" && o.bare():
		p.Operator = BodyReason
	case o.name == "PROTOCOL" && o.bare():
		p.Operator = BodyProtocol
	case o.name == "REQ" && o.parenthesis != "":
		p.Operator = BodyRequestField
		field, other, has := strings.Cut(strings.ToLower(o.argument), "?")
		if !isRequestField(field) || has && !isRequestField(other) {
			return p, fmt.Errorf("%q names no header field", o.whole)
		}
		p.Name, p.Other = field, other
		if o.limit != "" {
			if p.Length, err = strconv.Atoi(o.length); err != nil || p.Length == 0 {
				return p, fmt.Errorf("%q has a length that cannot be used", o.whole)
			}
		}
	default:
		return p, fmt.Errorf("%q is not known", o.whole)
	}
	return p, nil
}

func isRequestField(name string) bool {
	return IsToken(name) || name == ":authority" || name == ":method" || name == ":path"
}

// BodyEscape is how values of the request are escaped in a body, so that a client cannot change the meaning of a page by what it
// sends.
type BodyEscape uint8

const (
	EscapeNothing BodyEscape = iota // for plain text
	EscapeHTML                      // as HTML character references
	EscapeJSON                      // as part of a JSON string
	EscapeUnknown                   // as for HTML: for media types for which no safe escaping is known
)

// BodyEscape returns the escaping for the media type that the response finally has, including one that its header modifier sets. It
// returns EscapeUnknown if several media types that differ are set.
func (o *ResponseOverride) BodyEscape() BodyEscape {
	var types []string
	if o.GetContentType() != "" {
		types = append(types, o.GetContentType())
	}
	for _, fields := range [][]*HeaderField{o.GetHeader().GetSet(), o.GetHeader().GetAdd()} {
		for _, f := range fields {
			if strings.EqualFold(f.Name, "content-type") {
				types = append(types, f.Value)
			}
		}
	}
	escape := EscapeNothing
	for i, t := range types {
		this := escapeOf(t)
		if i > 0 && this != escape {
			return EscapeUnknown
		}
		escape = this
	}
	return escape
}

func escapeOf(contentType string) BodyEscape {
	media, _, _ := strings.Cut(contentType, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); {
	case media == "text/plain":
		return EscapeNothing
	case media == "text/html":
		return EscapeHTML
	case strings.HasSuffix(media, "/json"), strings.HasSuffix(media, "+json"):
		return EscapeJSON
	}
	return EscapeUnknown
}
