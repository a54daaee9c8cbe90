package config

import (
	"fmt"
	"strconv"
	"strings"
)

// BodyOperator is what stands in a ResponseOverride's body for a value of the request or response.
type BodyOperator uint8

const (
	BodyText         BodyOperator = iota // no operator
	BodyResponseCode                     // %RESPONSE_CODE%: the status that the client is sent
	BodyReason                           // %RESPONSE_CODE_DETAILS%: the reason word of the response
	BodyProtocol                         // %PROTOCOL%: HTTP/1.1, HTTP/1.0 or HTTP/2
	BodyRequestField                     // %REQ(NAME)%, %REQ(NAME?OTHER)%, or with :LENGTH behind the parenthesis: a header field of the request
)

// BodyPart is a part of a ResponseOverride's body.
type BodyPart struct {
	Operator BodyOperator
	Text     string // of BodyText
	// Name is that of the field of BodyRequestField, and Other that of the one in its place where there is none, "" for none; both in lower case. ":authority",
	// ":method" and ":path", which has the query, too, are as the client has sent them.
	Name, Other string
	Length      int // bytes of the value at most; 0 is all
}

// BodyOperators names those that ParseBody knows.
const BodyOperators = "%RESPONSE_CODE%, %RESPONSE_CODE_DETAILS%, %PROTOCOL% and %REQ(NAME)%"

// ParseBody reads the body of a ResponseOverride. An error names an operator that is not known: those of Envoy that are not are refused, as is a name
// that no field can have. Two percent signs are one.
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

// BodyEscape is how values of the request are written into a body, so that a client cannot have a page say something else by what it sends.
type BodyEscape uint8

const (
	EscapeNothing BodyEscape = iota // for plain text
	EscapeHTML                      // as character references
	EscapeJSON                      // as part of a string
	EscapeUnknown                   // as for HTML: of a type of which nobody knows where a value of the request would be safe
)

// BodyEscape is by the media type that the response has in the end: that which its header is given counts, too. Of several that differ it is EscapeUnknown.
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
