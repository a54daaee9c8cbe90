package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
)

// responseOverrides describes which responses a BackendTrafficPolicy overrides, and how, one line each, in order.
func responseOverrides(list []*config.ResponseOverride) (lines []string) {
	for _, o := range list {
		lines = append(lines, "a response "+overridden(o)+" is "+overriding(o))
	}
	return lines
}

// overridden describes the conditions for a response.
func overridden(o *config.ResponseOverride) string {
	var when []string
	switch o.Source {
	case config.ResponseSource_RESPONSE_SOURCE_LOCAL:
		when = append(when, "of the gateway itself")
	case config.ResponseSource_RESPONSE_SOURCE_BACKEND:
		when = append(when, "of the backend")
	}
	if len(o.Statuses) > 0 {
		var all []string
		for _, s := range o.Statuses {
			text := strconv.Itoa(int(s.First))
			if s.Last != s.First {
				text += "-" + strconv.Itoa(int(s.Last))
			}
			all = append(all, text)
		}
		when = append(when, "with status "+strings.Join(all, ", "))
	}
	for _, f := range o.HeaderFields {
		how := "is"
		switch f.Type {
		case config.StringMatchType_STRING_MATCH_TYPE_PREFIX:
			how = "begins with"
		case config.StringMatchType_STRING_MATCH_TYPE_SUFFIX:
			how = "ends with"
		case config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION:
			how = "matches"
		}
		when = append(when, fmt.Sprintf("whose %s %s %q", f.Name, how, f.Value))
	}
	return strings.Join(when, " ")
}

// overriding describes how the response is changed.
func overriding(o *config.ResponseOverride) string {
	if r := o.Redirect; r != nil {
		return fmt.Sprintf("replaced by a redirect, status %d", r.StatusCode)
	}
	var with []string
	if o.StatusCode != 0 {
		with = append(with, fmt.Sprintf("status %d", o.StatusCode))
	}
	if o.Body != nil {
		with = append(with, fmt.Sprintf("a body of %d bytes", len(*o.Body)))
	}
	if o.ContentType != "" {
		with = append(with, "content type "+o.ContentType)
	}
	for _, f := range o.Header.GetSet() {
		with = append(with, f.Name+" set")
	}
	for _, f := range o.Header.GetAdd() {
		with = append(with, f.Name+" added")
	}
	if len(with) == 0 {
		return "sent as it is, without a look at what follows"
	}
	return "sent with " + strings.Join(with, ", ")
}
