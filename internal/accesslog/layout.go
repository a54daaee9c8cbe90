package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// The named formats; any other text is a template.
const (
	JSON     = "json"
	Combined = "combined"
)

// combined is the Combined Log Format of Apache and nginx.
const combined = `{client_ip} - - [{common_time}] "{method} {path} {protocol}" {response_code} {bytes_sent} "{request_header.referer}" "{user_agent}"`

// Maximums of Options. A line with all of them fits into a buffer of the log, which a test of observe checks.
const (
	MaxFormat     = 1024
	MaxMembers    = 64
	MaxHeaders    = 16
	MaxHeaderName = 64
	MaxRedacted   = 64
	MaxRedactName = 128
	MaxOneIn      = 1_000_000
)

// all stands for every member that lines contain by default.
const all = "all"

// credentials are headers whose values allow a reader of the log to impersonate someone.
var credentials = []string{"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token", "x-forwarded-access-token", "x-amz-security-token"}

// urls are headers that contain a URL, or the target of one.
var urls = []string{
	"referer", "location", "content-location", "destination", "link", "refresh", "x-original-uri", "x-original-url", "x-forwarded-uri", "x-forwarded-url", "x-rewrite-url",
	"x-envoy-original-path", "x-auth-request-redirect", "hx-current-url", "hx-location", "hx-push-url", "hx-redirect", "hx-replace-url",
}

// Options configure the content of lines. The zero value is JSON with every member, for every request.
type Options struct {
	Format  string   // JSON, Combined, or a template such as "{start_time} {path}"; "" means JSON
	Members []string // keys of members; nil means the default members
	Redact  []string // names of query parameters whose values are not logged; "*" means all
	OneIn   int      // one request in this many is logged; 0 and 1 mean every request
}

// Option is a field of Options.
type Option uint8

// The fields of Options.
const (
	OptionFormat Option = iota
	OptionMembers
	OptionRedact
	OptionOneIn
)

// Problem is what is wrong with Options.
type Problem struct {
	Option Option
	Index  int // index in a list; -1 if the problem concerns the whole option
	Text   string
	Remedy string
}

// Layout is the compiled form of Options. It is immutable.
type Layout struct {
	Text  bool // text, else JSON
	Parts []Part
	Tail  string // text after the last part, for text lines
	// RequestHeaders and ResponseHeaders are names in lower case. Record.Headers contains their values in this order, those of
	// requests first.
	RequestHeaders, ResponseHeaders []string
	// Redact are the names of redacted query parameters; RedactAll means all.
	Redact    []string
	RedactAll bool
	// Bound is the maximum length of a line in bytes, without its values.
	Bound int
}

// Part is a member and the text before it.
type Part struct {
	Literal string // in JSON the key with quotes and colon
	Member  Member
	Header  int // index in the record's values of headers
	// URL is set if the header contains a URL, in which query parameters are redacted.
	URL bool
}

// Redacts reports whether parameters are redacted.
func (l *Layout) Redacts() bool { return l.RedactAll || len(l.Redact) > 0 }

// Compile compiles options. It returns nil for JSON with every member and nothing redacted, or the problems of invalid options.
func Compile(o Options) (*Layout, []Problem) {
	c := compiler{layout: &Layout{}}
	c.redact(o.Redact)
	if o.OneIn < 0 || o.OneIn > MaxOneIn {
		c.problem(OptionOneIn, -1, fmt.Sprintf("use a number from 1, which is every request, to %d", MaxOneIn), "%d is out of bounds", o.OneIn)
	}
	switch format := o.Format; {
	case format == "" || format == JSON:
		if len(o.Members) == 0 && len(o.Redact) == 0 {
			return nil, c.problems
		}
		members := o.Members
		if len(members) == 0 {
			members = []string{all}
		}
		c.members(members)
	case len(o.Members) > 0:
		c.problem(OptionMembers, -1, "remove the members, or use the format json", "a text has the members that its format names")
	case format == Combined:
		c.template(combined)
	default:
		c.template(format)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	l := c.layout
	for i := range l.Parts {
		if p := &l.Parts[i]; p.Member == ResponseHeader {
			p.Header += len(l.RequestHeaders)
		}
		l.Bound += len(l.Parts[i].Literal) + 8 // for null, quotes and a comma
	}
	l.Bound += len(l.Tail) + 8
	return l, nil
}

type compiler struct {
	layout   *Layout
	seen     []string
	problems []Problem
}

func (c *compiler) problem(option Option, index int, remedy, format string, args ...any) {
	c.problems = append(c.problems, Problem{option, index, fmt.Sprintf(format, args...), remedy})
}

func (c *compiler) redact(names []string) {
	if len(names) > MaxRedacted {
		c.problem(OptionRedact, -1, `remove some, or use "*" for all parameters`, "there are %d names, and %d at most are allowed", len(names), MaxRedacted)
		return
	}
	for i, name := range names {
		switch {
		case name == "*":
			c.layout.RedactAll = true
		case name == "" || len(name) > MaxRedactName:
			c.problem(OptionRedact, i, fmt.Sprintf(`name a query parameter in %d bytes at most, or use "*" for all`, MaxRedactName), "%q is not the name of a query parameter", name)
		default:
			c.layout.Redact = append(c.layout.Redact, name)
		}
	}
}

func (c *compiler) members(keys []string) {
	if len(keys) > MaxMembers {
		c.problem(OptionMembers, -1, "remove some", "there are %d members, and %d at most are allowed", len(keys), MaxMembers)
		return
	}
	for i, key := range keys {
		if key != all {
			c.part(OptionMembers, i, key, "")
			continue
		}
		for m, d := range Members {
			if d.Presence != Chosen && c.first(OptionMembers, i, d.Key) {
				c.layout.Parts = append(c.layout.Parts, Part{Literal: `"` + d.Key + `":`, Member: Member(m)})
			}
		}
	}
}

// template parses a text with members in braces; {{ and }} are literal braces.
func (c *compiler) template(text string) {
	if len(text) > MaxFormat {
		c.problem(OptionFormat, -1, "shorten it", "it has %d bytes, and %d at most are allowed", len(text), MaxFormat)
		return
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\ufffd' }); i >= 0 {
		c.problem(OptionFormat, -1, "remove it", "byte %d begins a control character, or is not UTF-8", i)
		return
	}
	c.layout.Text = true
	var literal strings.Builder
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			literal.WriteByte(rest[0])
			rest = rest[2:]
		case rest[0] == '{':
			key, after, ok := strings.Cut(rest[1:], "}")
			if !ok {
				c.problem(OptionFormat, -1, "write a } behind the name of the member, or {{ for a brace", "a { is not closed")
				return
			}
			if !c.part(OptionFormat, -1, key, literal.String()) {
				return
			}
			literal.Reset()
			rest = after
		case rest[0] == '}':
			c.problem(OptionFormat, -1, "write }} for a brace", "a } closes nothing")
			return
		default:
			literal.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	c.layout.Tail = literal.String()
	if len(c.layout.Parts) == 0 {
		c.problem(OptionFormat, -1, `use json, combined, or a text such as "{start_time} {method} {path} {response_code}"`, "%q names no member", text)
	}
}

// first reports whether a member occurs for the first time.
func (c *compiler) first(option Option, index int, key string) bool {
	if slices.Contains(c.seen, key) {
		c.problem(option, index, "name it once", "%q is named twice", key)
		return false
	}
	c.seen = append(c.seen, key)
	return true
}

// part adds a member.
func (c *compiler) part(option Option, index int, key, literal string) bool {
	p := Part{Literal: literal}
	names := &c.layout.RequestHeaders
	name, header := strings.CutPrefix(key, requestHeaderPrefix)
	p.Member = RequestHeader
	if !header {
		name, header = strings.CutPrefix(key, responseHeaderPrefix)
		names, p.Member = &c.layout.ResponseHeaders, ResponseHeader
	}
	if header {
		name = strings.ToLower(name)
		key = Members[p.Member].Key[:strings.IndexByte(Members[p.Member].Key, '.')+1] + name
		switch {
		case !isToken(name) || len(name) > MaxHeaderName:
			c.problem(option, index, fmt.Sprintf("use the name of a header, of %d bytes at most", MaxHeaderName), "%q is not the name of a header", name)
			return false
		case slices.Contains(credentials, name):
			c.problem(option, index, "remove it", "the header %s has credentials, which are not logged", name)
			return false
		case len(c.layout.RequestHeaders)+len(c.layout.ResponseHeaders) == MaxHeaders:
			c.problem(option, index, "remove some", "more than %d headers are named", MaxHeaders)
			return false
		}
		p.Header, p.URL = len(*names), slices.Contains(urls, name)
	} else {
		m := slices.IndexFunc(Members[:RequestHeader], func(d Description) bool { return d.Key == key })
		if m < 0 {
			c.problem(option, index, "use one of "+strings.Join(Keys(), ", "), "%q is not a member of the access log", key)
			return false
		}
		p.Member = Member(m)
	}
	if !c.first(option, index, key) {
		return false
	}
	if header {
		*names = append(*names, name)
	}
	if option == OptionMembers {
		p.Literal = `"` + key + `":`
	}
	c.layout.Parts = append(c.layout.Parts, p)
	return true
}

// Keys returns the keys of all members.
func Keys() []string {
	keys := make([]string, len(Members))
	for i, d := range Members {
		keys[i] = d.Key
	}
	return keys
}

// isToken reports whether a text is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
