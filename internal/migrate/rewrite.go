package migrate

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
)

// rewrite defines how a location's path is matched and changed.
type rewrite struct {
	matches  []object
	regular  string   // the regular expression, if it is the only match
	replace  any      // the path of a URLRewrite; nil if none
	exact    any      // the one for an Exact match, if it differs
	slash    string   // a path that nginx redirects with 301 to itself with a slash; "" if none
	withheld bool     // the path for the backend cannot be expressed
	prefix   string   // the PathPrefix that replaces a regular expression; "" if none does, or if it is /
	longer   bool     // the regular expression matches longer names too
	earlier  []string // prefixes that nginx tries first
}

// rewrites decides about all locations of a host together, because their order depends on the types of their matches.
func (c *converter) rewrites(s *server) map[*location]*rewrite {
	out := map[*location]*rewrite{}
	if !s.regex {
		for _, l := range s.locations {
			out[l] = c.plain(s, l)
		}
		return out
	}
	// After a location of which a part of the path is replaced, which requires a prefix, all others that match some of its paths
	// must be prefixes too.
	parts := map[*location]*part{}
	for _, l := range s.locations {
		target := c.target(l)
		if !strings.Contains(target, "$") {
			continue
		}
		if p := splitPath(l.path, target); p != nil {
			parts[l] = p
		}
	}
	var prefixes []string // of the locations so far
	for _, l := range s.locations {
		begin := beginning(l.path)
		behind := slices.ContainsFunc(prefixes, func(p string) bool { return overlap(p, begin) })
		rw := c.expression(s, l, parts[l], behind)
		rw.earlier = slices.Clone(prefixes)
		out[l] = rw
		if rw.regular == "" && len(rw.matches) > 0 {
			prefixes = append(prefixes, rw.prefix)
		}
	}
	// nginx tries longer paths first, and Moongate longer expressions. Some expressions need more characters than their paths, so
	// the others are padded with characters without meaning.
	most := 0
	for l, rw := range out {
		most = max(most, len(rw.regular)-len(l.path))
	}
	for l, rw := range out {
		if rw.regular != "" {
			rw.matches = []object{pathMatch("RegularExpression", rw.regular+strings.Repeat("$", most-(len(rw.regular)-len(l.path))))}
		}
	}
	return out
}

// beginning returns the text with which all paths begin that an expression matches, disregarding case.
func beginning(pattern string) string {
	pattern = strings.TrimPrefix(pattern, "^")
	if topLevelChoice(pattern) {
		return ""
	}
	n := strings.IndexAny(pattern, `\^$.*+?()[]{}|`)
	if n < 0 {
		return pattern
	}
	if n > 0 && strings.ContainsRune("*?{", rune(pattern[n])) {
		n-- // the character before it is optional
	}
	return pattern[:n]
}

// relaxed returns an expression without lookarounds and backreferences that matches everything that another one matches.
func relaxed(pattern string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			if !class && pattern[i] >= '1' && pattern[i] <= '9' {
				b.WriteString("(?:.*)")
			} else {
				b.WriteString(pattern[i-1 : i+1])
			}
		case !class && lookaround.MatchString(rest):
			end := closing(rest)
			if end < 0 {
				return pattern
			}
			b.WriteString("(?:)")
			i += end
		default:
			if pattern[i] == '[' {
				class = true
			} else if pattern[i] == ']' {
				class = false
			}
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}

var lookaround = regexp.MustCompile(`^\(\?<?[=!]`)

// closing returns the index of the parenthesis that closes the one at the beginning of an expression, or -1.
func closing(pattern string) int {
	depth := 0
	for i, ch := range outside(pattern) {
		switch ch {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// overlap reports whether one text is a prefix of the other.
func overlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

// guards returns matches for paths that nginx protects and the PathPrefix of a location does not match: those in other case, and
// longer names. Without them a wider rule would serve these. They have no backends, because the part of the path to be replaced is
// unknown.
func (c *converter) guards(s *server, l *location, rw *rewrite) []object {
	set := c.settingsOf(l.from)
	protected := c.withheld(s, l) != "" || set.ranges || (len(set.auth) > 0 && !c.open(l))
	if rw.prefix == "" || !protected || set.redirect != nil {
		return nil
	}
	var expressions []string
	for i := range len(rw.prefix) {
		ch := rw.prefix[i]
		if ch|0x20 < 'a' || ch|0x20 > 'z' || ch >= 0x80 {
			continue
		}
		expressions = append(expressions, regexp.QuoteMeta(rw.prefix[:i])+string(ch^0x20)+"(?i:"+regexp.QuoteMeta(rw.prefix[i+1:])+").*")
	}
	if rw.longer {
		expressions = append(expressions, regexp.QuoteMeta(rw.prefix)+"[^/].*")
	}
	var out []object
	for _, e := range expressions {
		re := regexp.MustCompile("^(?:" + e + ")$")
		if slices.ContainsFunc(rw.earlier, func(p string) bool { return re.MatchString(p) || re.MatchString(p+"/") }) || len(e) > 1024 || len(out) == 64 {
			c.reportApproximated(l.from, l.field, "paths that are like "+rw.prefix+" but for case, or begin with it in a longer name, are protected by nginx; here a wider path of the host may serve them", "have the application protect them")
			continue
		}
		out = append(out, pathMatch("RegularExpression", e))
	}
	if len(out) > 0 {
		c.reportApproximated(l.from, l.field, "paths that are like "+rw.prefix+" but for case, or begin with it in a longer name, are answered 500, so that no wider path of the host serves them unprotected", "have clients write the path as it is here")
	}
	return out
}

// plain returns the rewrite of a location of a host without regular expressions.
func (c *converter) plain(s *server, l *location) *rewrite {
	if impossible.MatchString(strings.TrimSuffix(l.path, "/") + "/") {
		c.reportTranslated(l.from, l.field, "left out: "+l.path+" has repeated slashes or dot segments, which no path has when nginx compares it")
		return &rewrite{}
	}
	kind := "PathPrefix"
	if l.exact {
		kind = "Exact"
	}
	rw := &rewrite{matches: []object{pathMatch(kind, escape(l.path))}}
	if bare := strings.TrimSuffix(l.path, "/"); bare != l.path && bare != "" {
		taken := slices.ContainsFunc(s.locations, func(o *location) bool { return o != l && o.path == bare })
		if !taken {
			rw.slash = escape(bare)
		}
	}
	return rw
}

var impossible = regexp.MustCompile(`//|/\.\.?/`)

// escape percent-encodes what is not allowed in a path of a match. Paths of Ingresses are compared decoded.
func escape(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if ch := path[i]; ch >= 0x80 || (ch != '/' && !strings.ContainsRune("-._~!$&'()*+,;=:@", rune(ch)) && (ch < '0' || ch > '9') && (ch < 'A' || ch > 'Z') && (ch < 'a' || ch > 'z')) {
			fmt.Fprintf(&b, "%%%02X", ch)
		} else {
			b.WriteByte(ch)
		}
	}
	return b.String()
}

// search converts a regular expression that nginx searches for in a value to one that matches the whole value; ok is false if RE2
// does not support it.
func search(pattern string, fold bool) (string, bool) {
	out := "(?s).*(?:" + pattern + ").*"
	if fold {
		out = "(?i)" + strings.TrimPrefix(pattern, "^") + ".*"
		if topLevelChoice(pattern) {
			out = "(?is).*(?:^" + strings.TrimPrefix(pattern, "^") + ").*"
		}
	}
	_, err := regexp.Compile(out)
	return out, err == nil
}

// encoded replaces the characters of a pattern that only occur as escapes in paths: nginx compares decoded paths. ok is false if one
// is in a character class.
func encoded(pattern string) (string, bool) {
	var b strings.Builder
	class, escaped := false, false
	for _, ch := range pattern {
		switch {
		case ch > '~' || ch == ' ':
			if class {
				return "", false
			}
			b.WriteString("(?:" + escape(string(ch)) + ")") // with or without a backslash before it
			escaped = false
		case escaped:
			b.WriteString("\\" + string(ch))
			escaped = false
		case ch == '\\':
			escaped = true
		default:
			class = ch == '[' || class && ch != ']'
			b.WriteRune(ch)
		}
	}
	if escaped {
		b.WriteByte('\\') // which is an invalid pattern, as before
	}
	return b.String(), true
}

// outside yields the bytes of a pattern that are neither in a character class nor after a backslash, including the [ of each class.
func outside(pattern string) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		class := false
		for i := 0; i < len(pattern); i++ {
			switch ch := pattern[i]; {
			case ch == '\\':
				i++
			case class:
				class = ch != ']'
			default:
				class = ch == '['
				if !yield(i, ch) {
					return
				}
			}
		}
	}
}

// topLevelChoice reports whether a pattern has a "|" outside of parentheses and brackets.
func topLevelChoice(pattern string) bool {
	depth := 0
	for _, ch := range outside(pattern) {
		switch ch {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				return true
			}
		}
	}
	return false
}

// part is a rewrite that replaces the beginning of a path and keeps the rest.
type part struct {
	prefix, replacement string // without trailing slash; "" means /
	identity            bool   // it changes nothing
	differs             string // difference from nginx, for the report; "" if there is none besides that of all prefixes
	bareSlash           bool   // the prefix itself becomes the replacement and a slash
}

// tails are the ends of paths whose rest is kept, and the reference to it in the target.
var tails = []struct {
	tail, target, differs string
	bareSlash             bool
}{
	{"(/|$)(.*)", "/$2", "", true},
	{"(/|$)(.*)$", "/$2", "", true},
	{"(/|$)(.+)", "/$2", "the prefix itself matches too", true},
	{"/?(.*)", "/$1", "a longer name that begins with the last element does not match", true},
	{"/?(.*)$", "/$1", "a longer name that begins with the last element does not match", true},
	{"(/?)(.*)", "/$2", "a longer name that begins with the last element does not match", true},
	{"/(.*)", "/$1", "the prefix itself, without a slash, matches too", true},
	{"/(.*)$", "/$1", "the prefix itself, without a slash, matches too", true},
	{"/(.+)", "/$1", "the prefix itself matches too", true},
	{"(/.*)", "$1", "the prefix itself, without a slash, matches too", false},
	{"(/.*)?", "$1", "a longer name that begins with the last element does not match", false},
	{"(.*)", "$1", "a longer name that begins with the last element does not match", false},
}

var identityPath = regexp.MustCompile(`^/\(([^()]*)\.\*\)\$?$`)

// splitPath determines whether a target keeps the rest of the path; it returns nil if not, or if that is not known.
func splitPath(path, target string) *part {
	path = strings.TrimPrefix(path, "^")
	if target == "/$1" && identityPath.MatchString(path) && path != "/(.*)" {
		return &part{identity: true}
	}
	for _, t := range tails {
		literalPath, ok := strings.CutSuffix(path, t.tail)
		if !ok || !literal(literalPath) || strings.HasSuffix(literalPath, "/") {
			continue
		}
		replacement, ok := strings.CutSuffix(target, t.target)
		if !ok || strings.Contains(replacement, "$") {
			continue
		}
		if replacement != "" && !strings.HasPrefix(replacement, "/") {
			continue
		}
		p := &part{prefix: literalPath, replacement: strings.TrimSuffix(replacement, "/"), differs: t.differs, bareSlash: t.bareSlash && replacement != ""}
		if literalPath == "" {
			p.differs, p.bareSlash = "", false
		}
		p.identity = p.prefix == "" && p.replacement == ""
		return p
	}
	return nil
}

const foldRemedy = "check clients that write paths in other case or without a slash behind the prefix"

// expression returns the rewrite of a location of a host with regular expressions. behind is set if a location that precedes it is a
// PathPrefix.
func (c *converter) expression(s *server, l *location, p *part, behind bool) *rewrite {
	target := c.target(l)
	where := l.field
	regular := func() *rewrite {
		path := l.path
		if !l.exact && target == "" && !c.useRegex(l.from) && path != "/" && slices.ContainsFunc(s.locations, func(o *location) bool { return o.exact && o.path == l.path }) {
			path = strings.TrimSuffix(path, "/") + "/" // the path itself belongs to the Exact location
		}
		pattern, ok := encoded(path)
		re := ""
		if ok {
			re, ok = search(pattern, true)
		}
		if !ok {
			if pattern, ok = encoded(relaxed(path)); ok {
				re, ok = search(pattern, true)
			}
			if !ok {
				re = "(?i)" + regexp.QuoteMeta(escape(beginning(path))) + ".*"
			}
			c.reportNotTranslated(l.from, where, "the path "+l.path+" is no regular expression of RE2; so that no wider path of the host serves what it is for, all paths that match "+re+" and no longer path of the host are answered 500", "write it without lookarounds and backreferences")
			return &rewrite{regular: re, matches: []object{nil}, withheld: true} // rewrites sets the match
		}
		if behind {
			c.reportApproximated(l.from, where, "the regular expression "+l.path+" takes precedence over the prefixes of this host, in nginx over shorter paths only", "check paths that fit both")
		}
		return &rewrite{regular: re, matches: []object{pathMatch("RegularExpression", re)}}
	}
	prefix := func(path string) []object {
		if path == "" {
			path = "/"
		}
		return []object{pathMatch("PathPrefix", escape(path))}
	}
	withheld := func() *rewrite {
		if behind && literal(l.path) {
			return &rewrite{matches: prefix(l.path), withheld: true, prefix: strings.TrimSuffix(l.path, "/"), longer: true}
		}
		rw := regular()
		rw.withheld = true
		return rw
	}
	switch {
	case l.fallback && l.backend == nil:
		return &rewrite{matches: prefix("/")}
	case !sendable(target):
		c.reportNotTranslated(l.from, "rewrite-target", "the target "+target+" is no path that can be sent; its paths are answered 500", "write a space as %20, and no control characters")
		return withheld()
	case target == "":
		if !behind || !literal(l.path) {
			rw := regular()
			if len(rw.matches) > 0 && !c.useRegex(l.from) && !l.fallback {
				c.reportTranslated(l.from, where, fmt.Sprintf("an Ingress with use-regex or rewrite-target makes %s a case-insensitive regular expression, as in ingress-nginx", l.path))
			}
			return rw
		}
		if l.path != "/" {
			c.reportApproximated(l.from, where, fmt.Sprintf("%s is a prefix of whole elements; in nginx another Ingress or path of the host makes it a case-insensitive regular expression, which longer names and other cases match too", l.path), foldRemedy)
		}
		return &rewrite{matches: prefix(l.path), prefix: strings.TrimSuffix(l.path, "/"), longer: true}
	case !strings.Contains(target, "$"):
		c.reportTranslated(l.from, "rewrite-target", "the path becomes "+target)
		full := fields("type", "ReplaceFullPath", "replaceFullPath", target)
		if strings.ContainsAny(target, "?#") || !strings.HasPrefix(target, "/") {
			c.reportNotTranslated(l.from, "rewrite-target", "the target "+target+" is no path alone; its paths are answered 500", "rewrite in the application")
			rw := regular()
			rw.withheld = true
			return rw
		}
		if behind && literal(l.path) {
			if l.path != "/" {
				c.reportApproximated(l.from, where, fmt.Sprintf("%s is a prefix of whole elements; in nginx a case-insensitive regular expression, which longer names and other cases match too", l.path), foldRemedy)
			}
			return &rewrite{matches: prefix(l.path), replace: full, prefix: strings.TrimSuffix(l.path, "/"), longer: true}
		}
		rw := regular()
		rw.replace = full
		return rw
	case p != nil && p.identity && !(behind && l.path == "/(.*)"):
		c.reportTranslated(l.from, "rewrite-target", "the path stays as it is")
		return regular()
	case p != nil:
		message := fmt.Sprintf("%s is the prefix %s, of whole elements and with case, and %s takes its place", l.path, orSlash(p.prefix), orSlash(p.replacement))
		if p.differs != "" {
			message += "; " + p.differs
		}
		if p.prefix == "" {
			c.reportTranslated(l.from, "rewrite-target", message)
		} else {
			c.reportApproximated(l.from, "rewrite-target", message, foldRemedy)
		}
		rw := &rewrite{matches: prefix(p.prefix), prefix: p.prefix, longer: strings.HasPrefix(p.differs, "a longer name"), replace: fields("type", "ReplacePrefixMatch", "replacePrefixMatch", orSlash(p.replacement))}
		if p.identity {
			rw.replace = nil
		}
		if p.bareSlash {
			rw.matches = append(rw.matches, pathMatch("Exact", escape(p.prefix)))
			rw.exact = fields("type", "ReplaceFullPath", "replaceFullPath", p.replacement+"/")
		}
		return rw
	}
	c.reportNotTranslated(l.from, "rewrite-target", fmt.Sprintf("the target %s of the path %s cannot be expressed: only the beginning of a path can be replaced; its paths are answered 500", target, l.path),
		"write a URLRewrite filter that is close to it, or rewrite in the application")
	return withheld()
}

var reference = regexp.MustCompile(`\$\d`)

// target returns what a location's path is replaced with, or "" if it is not replaced. References to groups that the path does not
// have are empty, as in nginx.
func (c *converter) target(l *location) string {
	target := c.rewriteTarget(l.from)
	if target == l.path {
		return ""
	}
	groups := 0
	if re, err := regexp.Compile(l.path); err == nil {
		groups = re.NumSubexp()
	}
	return reference.ReplaceAllStringFunc(target, func(ref string) string {
		if int(ref[1]-'0') > groups {
			return ""
		}
		return ref
	})
}

func orSlash(s string) string {
	if s == "" {
		return "/"
	}
	return s
}
