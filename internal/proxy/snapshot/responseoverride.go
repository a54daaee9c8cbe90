package snapshot

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/table"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// ResponseOverrides are responses that replace others.
type ResponseOverrides struct {
	list []ResponseOverride
	// Target means that one of them refers to the target as the client has sent it.
	Target bool
}

// ResponseOverride is the replacement for the responses that it matches.
type ResponseOverride struct {
	statuses       []*config.StatusRange
	fields         []fieldMatch
	local, backend bool

	// Redirect returns the response; nil if the other fields define it.
	Redirect func(*filter.Exchange) *filter.Reply
	Status   int // 0 keeps the status of the response
	// ContentType is nil if the response keeps its own.
	ContentType []byte
	Body        *ResponseBody          // nil keeps the body of the response
	Header      func(*filter.Exchange) // changes the header; nil if nothing changes
}

// ResponseBody is a body that may have operators.
type ResponseBody struct {
	// Static means that it has no operators, so that it is Text.
	Static bool
	Text   []byte
	Parts  []config.BodyPart
	Escape config.BodyEscape
	// Asks means that it contains values of the request, so that clients must not take it for anything but its content
	// type.
	Asks bool
}

type fieldMatch struct {
	name  string // in lower case
	how   config.StringMatchType
	value []byte
	regex match.Expression
}

// match reports whether a field line has a value that matches.
func (m *fieldMatch) match(header *message.Fields, steps *match.Steps) bool {
	for i := range header.Len() {
		f := header.At(i)
		if message.EqualFold(f.Name, m.name) && m.matchValue(f.Value, steps) {
			return true
		}
	}
	return false
}

func (m *fieldMatch) matchValue(value []byte, steps *match.Steps) bool {
	switch m.how {
	case config.StringMatchType_STRING_MATCH_TYPE_PREFIX:
		return bytes.HasPrefix(value, m.value)
	case config.StringMatchType_STRING_MATCH_TYPE_SUFFIX:
		return bytes.HasSuffix(value, m.value)
	case config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION:
		return m.regex.Matches(value, steps)
	}
	return bytes.Equal(value, m.value)
}

// Match returns the override for a response, nil if there is none. local means that the gateway has made the response.
// If the header is too long for the regular expressions, as for a request, none of the expressions matches.
func (o *ResponseOverrides) Match(r *message.Response, local bool) *ResponseOverride {
	steps := match.NewSteps()
	for i := range o.list {
		if one := &o.list[i]; one.match(r, local, &steps) {
			return one
		}
	}
	return nil
}

func (o *ResponseOverride) match(r *message.Response, local bool, steps *match.Steps) bool {
	if local && !o.local || !local && !o.backend {
		return false
	}
	has := func(s *config.StatusRange) bool { return r.Status >= int(s.First) && r.Status <= int(s.Last) }
	if len(o.statuses) > 0 && !slices.ContainsFunc(o.statuses, has) {
		return false
	}
	for i := range o.fields {
		if !o.fields[i].match(&r.Header, steps) {
			return false
		}
	}
	return true
}

// compiledOverrides are the overrides of all rules with the same ones: a policy may apply to thousands of rules, and
// has expressions and bodies.
type compiledOverrides struct {
	*ResponseOverrides
	err error
}

// responseOverrides sets a rule's overrides, which are compiled once for all rules with the same ones.
func (p *Compiler) responseOverrides(r *Rule, list []*config.ResponseOverride) error {
	if len(list) == 0 {
		return nil
	}
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(&config.RuleTraffic{ResponseOverrides: list})
	if err != nil {
		return err
	}
	compiled, release := p.overrides.Take(string(key), func() *compiledOverrides {
		o, err := compileResponseOverrides(list)
		return &compiledOverrides{o, err}
	})
	r.release = append(r.release, release)
	r.ResponseOverrides = compiled.ResponseOverrides
	return compiled.err
}

func compileResponseOverrides(list []*config.ResponseOverride) (*ResponseOverrides, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := &ResponseOverrides{}
	for i, c := range list {
		o, err := compileResponseOverride(c)
		if err != nil {
			return nil, fmt.Errorf("response override %d: %w", i, err)
		}
		out.list = append(out.list, o)
		out.Target = out.Target || o.Redirect != nil || o.Body.saysPath()
	}
	return out, nil
}

func (b *ResponseBody) saysPath() bool {
	return b != nil && slices.ContainsFunc(b.Parts, func(p config.BodyPart) bool { return p.Name == ":path" || p.Other == ":path" })
}

// static returns the body if it has no operators.
func (b *ResponseBody) static() (text []byte, ok bool) {
	for _, p := range b.Parts {
		if p.Operator != config.BodyText {
			return nil, false
		}
		text = append(text, p.Text...)
	}
	return slices.Clip(text), true
}

func compileResponseOverride(c *config.ResponseOverride) (o ResponseOverride, err error) {
	o = ResponseOverride{
		statuses: c.Statuses,
		local:    c.Source != config.ResponseSource_RESPONSE_SOURCE_BACKEND,
		backend:  c.Source != config.ResponseSource_RESPONSE_SOURCE_LOCAL,
		Status:   int(c.StatusCode),
	}
	for _, f := range c.HeaderFields {
		m := fieldMatch{name: f.Name, how: f.Type, value: []byte(f.Value)}
		if f.Type == config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION {
			if m.regex, err = match.CompileExpression(f.Value); err != nil {
				return o, err
			}
		}
		o.fields = append(o.fields, m)
	}
	if c.Redirect != nil {
		f, err := compileAlone(c.Redirect)
		o.Redirect = f.Request
		return o, err
	}
	if o.Status != 0 && (o.Status < 200 || o.Status > 599) {
		return o, fmt.Errorf("%d cannot be the status of a response", o.Status)
	}
	if c.ContentType != "" {
		o.ContentType = []byte(c.ContentType)
	}
	if c.Body != nil {
		o.Body = &ResponseBody{Escape: c.BodyEscape()}
		if o.Body.Parts, err = config.ParseBody(*c.Body); err != nil {
			return o, err
		}
		o.Body.Text, o.Body.Static = o.Body.static()
		o.Body.Asks = slices.ContainsFunc(o.Body.Parts, func(p config.BodyPart) bool { return p.Operator == config.BodyRequestField })
	}
	if c.Header != nil {
		f, err := compileAlone(c.Header)
		o.Header = f.Response
		return o, err
	}
	return o, nil
}

// compileAlone compiles a filter that is not in a list.
func compileAlone(m proto.Message) (filter.Filter, error) {
	packed, err := anypb.New(m)
	if err != nil {
		return filter.Filter{}, err
	}
	return table.Compile(packed, filter.Env{})
}
