package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxShown is how much of a user's value a message repeats, in bytes.
const maxShown = 80

// IntegerOrString is a type in addition to those of JSON Schema, for WrongType.
const IntegerOrString = "integer or string"

// UnknownFieldMessage is the message of the Violation for an unknown field.
const UnknownFieldMessage = "unknown field"

// misplaced begins the remedy for a field that is known, but elsewhere; the place follows, in quotes.
const misplaced = "it is a field of "

// Parent returns the field, next to an unknown one, to which the unknown field belongs according to the remedy; "" if none.
func (v Violation) Parent() string {
	quoted, ok := strings.CutPrefix(v.Remedy, misplaced)
	if quoted, _, _ = strings.Cut(quoted, ";"); !ok {
		return ""
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return ""
	}
	return name
}

// replaced are remedies for fields of earlier versions of the Gateway API, by the field and the one that contained it, and another
// field that is present instead.
var replaced = []struct{ field, by, remedy string }{
	{"sessionPersistence.sessionName", "cookie", `write "cookie.name" in its place, or "header.name" with "type: Header"`},
	{"sessionPersistence.cookieConfig", "cookie", `write "cookie" in its place`},
	{"sessionPersistence.idleTimeout", "cookie", `remove it: the Gateway API does not have it any more, and "absoluteTimeout" says how long a session lasts at most`},
}

// UnknownField returns the Violation for a field that is not among the known ones.
func UnknownField(path, name string, known []string) Violation {
	v := Violation{Field: path, Message: UnknownFieldMessage}
	for _, r := range replaced {
		if strings.HasSuffix(path, "."+r.field) && slices.Contains(known, r.by) {
			v.Remedy = r.remedy
			return v
		}
	}
	switch near := Nearest(name, known); {
	case near != "":
		v.Remedy = "did you mean " + strconv.Quote(near) + "?"
	case len(known) > 0 && len(known) <= 20:
		slices.Sort(known)
		v.Remedy = "remove it; the fields here are " + strings.Join(known, ", ")
	default:
		v.Remedy = "remove it, or check its indentation"
	}
	return v
}

// WrongType returns the Violation for a value of the wrong JSON type; want is a JSON Schema type name.
func WrongType(path string, value any, want string) Violation {
	v := Violation{Field: path, Message: fmt.Sprintf("is %s, must be %s", describe(value), article(want))}
	switch value := value.(type) {
	case map[string]any, []any:
		v.Remedy = "write " + example(want)
	case nil:
		v.Remedy = "write " + example(want) + ", or remove the field"
	case string:
		v.Remedy = "write " + example(want)
		if _, err := strconv.ParseFloat(value, 64); err != nil && (want == "integer" || want == "number") {
			return v // to remove the quotes would not help
		}
		if want == "integer" || want == "number" || want == "boolean" {
			v.Remedy += " without quotes"
		}
	default:
		v.Remedy = "write " + example(want)
		_, isBool := value.(bool)
		switch {
		case want == "string" && (isBool || !durationField.MatchString(path)):
			v.Remedy = "put it in quotes: " + strconv.Quote(Show(value))
		case want == "string":
			v.Remedy = "write a duration with its unit, as in " + Show(value) + "s"
		}
	}
	return v
}

// durationField matches paths of fields that are durations, as far as their names show.
var durationField = regexp.MustCompile(`(?i)(timeout|interval|duration|period|backoff|delay|ttl|window)$|\.(request|backendRequest)$`)

// Unsupported returns the Violation for a value outside an enumeration.
func Unsupported(path string, value any, allowed []string) Violation {
	v := Violation{Field: path, Message: "unsupported value " + quoted(value)}
	slices.Sort(allowed)
	s, _ := value.(string)
	if near := cmp.Or(Nearest(s, allowed), sameStart(s, allowed)); near != "" {
		v.Remedy = "did you mean " + near + "? "
	}
	v.Remedy += "Use one of " + strings.Join(allowed, ", ")
	if !strings.HasPrefix(v.Remedy, "did") {
		v.Remedy = "use" + v.Remedy[len("Use"):]
	}
	return v
}

// Missing returns the Violation for a required field that is absent.
func Missing(path string) Violation {
	_, name := splitLast(path)
	v := Violation{Field: path, Message: "required field is missing", Remedy: "add " + strconv.Quote(name)}
	if name == "group" {
		v.Remedy += `, which is "" for a Service or a Secret, and gateway.networking.k8s.io for a route`
	}
	return v
}

// FromError converts an error of Kubernetes' validation to a Violation.
func FromError(e *field.Error) Violation { return violation(e, nil) }

func violation(e *field.Error, obj map[string]any) Violation {
	path := e.Field
	if path == "<nil>" {
		path = ""
	}
	path = strings.TrimPrefix(path, ".")
	switch e.Type {
	case field.ErrorTypeRequired:
		v := Missing(path)
		if e.Detail != "" {
			v.Message = e.Detail
		}
		return v
	case field.ErrorTypeNotSupported:
		return Unsupported(path, e.BadValue, allowedValues(e.Detail))
	case field.ErrorTypeTypeInvalid:
		return wrongType(path, e, obj)
	case field.ErrorTypeTooLong, field.ErrorTypeTooMany:
		if n, ok := e.BadValue.(int); ok {
			_, bound, _ := strings.Cut(e.Detail, "at most ")
			return Violation{Field: path, Message: fmt.Sprintf("has %d, and may have at most %s", n, bound), Remedy: "remove some"}
		}
		return Violation{Field: path, Message: strings.ToLower(e.Type.String()) + sizeDetail(e), Remedy: "shorten it" + sizeDetail(e)}
	case field.ErrorTypeDuplicate:
		return Violation{Field: path, Message: "duplicate of an earlier entry: " + quoted(e.BadValue), Remedy: "remove it or make it differ"}
	}
	if rule, regex, ok := strings.Cut(e.Detail, " (e.g. "); ok && strings.Contains(regex, "regex used for validation") {
		example, _, _ := strings.Cut(strings.TrimPrefix(regex, "'"), "'")
		return Violation{Field: path, Message: quoted(e.BadValue) + " is not valid: " + rule, Remedy: "rename it, for example to " + nameLike(e.BadValue, rule, example)}
	}
	message := schemaMessage(path, e.Detail)
	if strings.HasPrefix(message, "must ") && !strings.HasPrefix(message, "must have ") {
		switch value := e.BadValue.(type) {
		case string:
			if value != "object" && value != "array" { // CEL only names the type
				message = quoted(value) + " " + message
			}
		case int64, float64:
			message = Show(value) + " " + message
		}
	}
	what := remedy(e.Detail, message)
	if value, ok := e.BadValue.(string); ok && strings.Contains(message, "must match '^") && strings.Contains(strings.ToLower(path), "hostname") {
		what = cmp.Or(hostnameRemedy(value), what)
	}
	if strings.Contains(path, ".queryParams[") && strings.Contains(what, "name of a header field") { // their pattern is the same
		what = `write a name of letters, digits and "-", without spaces and characters that are percent-encoded; other names cannot be matched`
	}
	if list, found := lookup(obj, path); found {
		what = cmp.Or(listenersRemedy(list, message), what)
	}
	return Violation{Field: path, Message: message, Remedy: what}
}

// listenersRemedy names the first listeners that violate the rule against equal ones; "" for other rules.
func listenersRemedy(list any, message string) string {
	if !strings.HasPrefix(message, "Combination of port, protocol and hostname") {
		return ""
	}
	listeners, _ := list.([]any)
	names := map[string]string{}
	for _, l := range listeners {
		l, _ := l.(map[string]any)
		key, name := fmt.Sprintf("%v %v %v", l["port"], l["protocol"], l["hostname"]), quoted(l["name"])
		if other, same := names[key]; same {
			return "change the port or the hostname of listener " + other + " or " + name
		}
		names[key] = name
	}
	return ""
}

// hostnameRemedy returns how to change a value to a DNS name; "" if it is not known.
func hostnameRemedy(value string) string {
	if _, host, isURL := strings.Cut(value, "://"); isURL {
		host, _, _ = strings.Cut(host, "/")
		return "it is a URL; write the name alone, as in " + Show(host)
	}
	if host, _, ok := strings.Cut(value, "/"); ok && host != "" {
		return "it has a path; write the name alone, as in " + Show(host)
	}
	if host, ok := strings.CutSuffix(value, "."); ok && host != "" {
		return "write it without the dot at the end: " + Show(host)
	}
	return ""
}

// notInName matches the characters that are not allowed in names of objects.
var notInName = regexp.MustCompile(`[^a-z0-9.-]+`)

// nameLike returns a valid name that is similar to a value, or other if there is none.
func nameLike(value any, rule string, other string) string {
	s, _ := value.(string)
	s = strings.Trim(notInName.ReplaceAllString(strings.ToLower(s), "-"), "-.")
	valid := validation.IsDNS1123Subdomain
	if strings.Contains(rule, "label") {
		valid = validation.IsDNS1123Label
	}
	if strings.Contains(rule, "RFC 1123") && len(valid(s)) == 0 {
		return s
	}
	return other
}

// schemaMessage removes the "<path> in body" that a schema error repeats.
func schemaMessage(path, detail string) string {
	if rest, ok := strings.CutPrefix(detail, path+" in body "); ok {
		detail = rest
	} else if i := strings.Index(detail, " in body "); i >= 0 {
		detail = detail[i+len(" in body "):]
	}
	if rest, ok := strings.CutPrefix(detail, "should "); ok {
		detail = "must " + rest
	}
	return detail
}

func wrongType(path string, e *field.Error, obj map[string]any) Violation {
	want := "object"
	if _, t, ok := strings.Cut(e.Detail, "must be of type "); ok {
		want, _, _ = strings.Cut(t, ":")
		want, _, _ = strings.Cut(want, ",")
	}
	value, ok := lookup(obj, path)
	if !ok {
		value = e.BadValue
	}
	switch want {
	case "int32", "int64": // formats of an integer
		v := WrongType(path, value, "integer")
		if _, isNumber := value.(float64); isNumber {
			v.Remedy = "write a whole number"
		}
		return v
	case "ipv4", "ipv6": // a field with one of these formats accepts the other too
		return Violation{Field: path, Message: "is " + describe(value) + ", must be an IP address", Remedy: "write an IP address, such as 192.0.2.1"}
	}
	return WrongType(path, value, want)
}

// lookup returns the value at a path of the schema validator. Names may contain dots (annotations), so in an object the longest
// matching name is used.
func lookup(v any, path string) (any, bool) {
	path = strings.TrimPrefix(path, ".")
	if path == "" {
		return v, true
	}
	switch v := v.(type) {
	case []any:
		index, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(v) {
			return lookup(v[i], rest)
		}
	case map[string]any:
		best, rest := "", ""
		for name := range v {
			tail, ok := strings.CutPrefix(path, name)
			if ok && len(name) > len(best) && (tail == "" || tail[0] == '.' || tail[0] == '[') {
				best, rest = name, tail
			}
		}
		if best != "" {
			return lookup(v[best], rest)
		}
	}
	return nil, false
}

// sizeDetail returns the maximum in a TooLong error, as " (at most 253 bytes)".
func sizeDetail(e *field.Error) string {
	if _, n, ok := strings.Cut(e.Detail, "more than "); ok {
		return " (at most " + n + ")"
	}
	return ""
}

// allowedValues parses the list in `supported values: "A", "B"`.
func allowedValues(detail string) []string {
	_, list, _ := strings.Cut(detail, ": ")
	var values []string
	for v := range strings.SplitSeq(list, ", ") {
		if u, err := strconv.Unquote(v); err == nil {
			v = u
		}
		values = append(values, v)
	}
	return values
}

// Show returns a value as the user wrote it, shortened.
func Show(v any) string {
	s, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprintf("%T", v)
		}
		s = string(b)
	}
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}

func quoted(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(Show(s))
	}
	return Show(v)
}

func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "the string " + quoted(v)
	case bool:
		return "the boolean " + Show(v)
	case nil:
		return "null"
	}
	return "the number " + Show(v)
}

func article(want string) string {
	switch want {
	case "object", "integer", IntegerOrString:
		return "an " + want
	case "array":
		return "a list"
	}
	return "a " + want
}

func example(want string) string {
	switch want {
	case "object":
		return `fields ("name: value" lines) under it`
	case "array":
		return `a list (lines that begin with "- ")`
	case "integer", "number":
		return "a number"
	case IntegerOrString:
		return "a number or a string"
	case "boolean":
		return "true or false"
	}
	return "a " + want
}
