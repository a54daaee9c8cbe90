package schema

import (
	"regexp"
	"strings"
	"sync"
)

// remedies returns the remedies for rules of the CRDs, by patterns of their messages; the first match is used. $1 and so on are the
// pattern's groups. They are compiled when first needed: a proxy never needs them, and there are many proxies.
var remedies = sync.OnceValue(func() []remedyRule {
	return []remedyRule{
		{regexp.MustCompile(`^Must have port for Service reference`), `add "port" with a port of that Service`},
		{regexp.MustCompile(`^Must not have port for Backend`), `remove "port"`},
		{regexp.MustCompile(`^filter\.(\w+) must be nil if the filter\.type is not (\w+)`), `set "type: $2", or remove "$1"`},
		{regexp.MustCompile(`^filter\.(\w+) must be specified for (\w+) filter\.type`), `add "$1", or change "type: $2"`},
		{regexp.MustCompile(`^(\w+) filter cannot be repeated`), `join the $1 filters into one`},
		{regexp.MustCompile(`^RequestRedirect filter must not be used together with backendRefs`), `remove "backendRefs" or the RequestRedirect filter`},
		{regexp.MustCompile(`^May specify either httpRouteFilterRequestRedirect`), `keep RequestRedirect or URLRewrite, not both`},
		{regexp.MustCompile(`(?i)exactly one PathPrefix match must be specified`), `give the rule exactly one match with "path.type: PathPrefix"`},
		{regexp.MustCompile(`^(replace\w+) must be specified when type`), `add "$1"`},
		{regexp.MustCompile(`^type must be '(\w+)' when (\w+) is set`), `set "type: $1", or remove "$2"`},
		{regexp.MustCompile(`^(\w+) must be specified when (?:protocol|cookie)`), `add "$1"`},
		{regexp.MustCompile(`^(\w+) must be specified for (\w+) type`), `add "$1"`},
		{regexp.MustCompile(`^(\w+) must be nil if type is not (\w+)`), `remove "$1", or set "type: $2"`},
		{regexp.MustCompile(`^protocol must be '(\w+)' when`), `set "protocol: $1"`},
		{regexp.MustCompile(`^value must be an absolute path`), `let the path begin with "/"`},
		{regexp.MustCompile(`^must not (?:contain|end with) '([^']+)' when type`), `write the path without "$1"`},
		{regexp.MustCompile(`^(?:type )?must be one of \[(.*)\]`), `use one of $1`},
		{regexp.MustCompile(`^service must only contain valid characters`), `write the full name of the Protobuf service, as in example.v1.Cart; the method goes into "method"`},
		{regexp.MustCompile(`^method must only contain valid characters`), `write the name of the method alone, as in AddItem`},
		{regexp.MustCompile(`^must only contain valid characters .* for types`), `percent-encode other characters of the path`},
		{regexp.MustCompile(`^backendRequest timeout cannot be longer`), `shorten "backendRequest" or lengthen "request"`},
		{regexp.MustCompile(`^tls must not be specified for protocols`), `remove "tls", or set "protocol: HTTPS" or "protocol: TLS"`},
		{regexp.MustCompile(`^tls mode must be (\w+) for`), `set "tls.mode: $1"`},
		{regexp.MustCompile(`^tls mode must be set`), `add "tls" with "mode: Terminate" or "mode: Passthrough"`},
		{regexp.MustCompile(`^hostname must not be specified`), `remove "hostname"`},
		{regexp.MustCompile(`^certificateRefs or options must be specified`), `add "certificateRefs" with the name of a Secret`},
		{regexp.MustCompile(`^Listener name must be unique`), `give each listener its own name`},
		{regexp.MustCompile(`^Combination of port, protocol and hostname`), `change the port or the hostname of one of these listeners`},
		{regexp.MustCompile(`^sectionName or port must be specified`), `give each of these parentRefs a sectionName of its own, or each of them a port of its own, or both`},
		{regexp.MustCompile(`^sectionName or port must be unique`), `give each of these parentRefs its own sectionName or port`},
		{regexp.MustCompile(`^sectionName must be`), `give each of these targetRefs its own sectionName`},
		{regexp.MustCompile(`^exactly one of the fields in \[(.*)\]`), `set one of $1, and only one`},
		{regexp.MustCompile(`^SubjectAltName element must contain (\w+)`), `add "$1" in lower case, or change "type"`},
		{regexp.MustCompile(`^SubjectAltName element must not contain (\w+)`), `remove the $1, or set "type: $1"`},
		{regexp.MustCompile(`^numerator must be less`), `use a numerator that is not larger than the denominator`},
		{regexp.MustCompile(`^Routability must be`), `remove "routability", or write Cluster or a name such as example.com/name`},
		{regexp.MustCompile(`key's prefix must be`), `use a DNS name before the "/"`},
		{regexp.MustCompile(`^ClusterTrustBundle references must not`), `remove "namespace"`},
		{regexp.MustCompile(`^(\w+) can only be set when mode is (\w+)`), `remove "$1", or set "mode: $2" beside it`},
		{regexp.MustCompile(`^provider is required when mode is Enabled`), `add "provider" with the backendRef of the collector to "mode: Enabled", or remove it from another mode`},
		{regexp.MustCompile(`^(\w+) is required when sourceType is (\w+)`), `set "$1" with "sourceType: $2", and with that one alone`},
		{regexp.MustCompile(`^at least one of the fields in \[(.*)\]`), `set $1`},
		{regexp.MustCompile(`^filters may only be set`), `remove "filters", or set "protocol: HTTP" or "protocol: HTTPS"`},
		{regexp.MustCompile(`^at most (\d+\w)$`), `write a duration of at most $1`},
		{regexp.MustCompile(`^above 0s and at most (\d+\w)$`), `write a duration above 0s, of at most $1`},
		{regexp.MustCompile(`^cookie and header replace`), `name the cookie in "cookie.name" or the header in "header.name", and remove "sessionName", "idleTimeout" and "cookieConfig"`},
		{regexp.MustCompile(`^from (\d+\w) to (\d+\w)$`), `write a duration from $1 to $2`},
		{regexp.MustCompile(`^(\w+) is above (\w+)`), `lower "$1", or raise "$2"`},
		{regexp.MustCompile(`^(\w+) and (\w+) exclude each other`), `remove "$1" or "$2"`},
		{regexp.MustCompile(`^(\w+) excludes (.*)`), `remove "$1", or $2`},
		{regexp.MustCompile(`^must not be negative`), `use 0 or more`},
		{regexp.MustCompile(`^must be at least 1$`), `use 1 or more`},
		{regexp.MustCompile(`^volumes of the proxy itself`), `use another name`},
		{regexp.MustCompile(`^(\w+) must be set when type is (\w+)`), `set "$1" with "type: $2", and with that one alone`},
		{regexp.MustCompile(`^tls must be disabled when protocol is H2C`), `set "tls.mode: None", or "protocol: HTTP2"`},
		{regexp.MustCompile(`^tls must be enabled when protocol is (\w+)`), `set "tls.mode: ServerOnly" with "tls.validation", or another protocol than $1`},
		{regexp.MustCompile(`^(\w+) can only be set when type is (\w+)`), `remove "$1", or set "type: $2"`},
		{regexp.MustCompile(`^(\w+) must be set if and only if mode is (?:either )?(.*)`), `set "$1" with "mode" $2, and with no other`},
		{regexp.MustCompile(`^hostname must not be an IP address`), `write the name of a host outside of the cluster, or select endpoints with "type: EndpointSelector"`},
		{regexp.MustCompile(`^field is immutable`), `use another object`},
		{regexp.MustCompile(`^Rule name must be unique`), `give each rule its own name`},
		{regexp.MustCompile(`must be unique`), `make the values differ, or remove one`},
		{regexp.MustCompile(`^While 16 rules`), `split the route in two`},
		{regexp.MustCompile(`^Only one of percent or fraction`), `remove "percent" or "fraction"`},
		{regexp.MustCompile(`cannot contain '\*' alongside`), `keep "*" alone, or list the values without it`},
		{regexp.MustCompile(`^One or both of 'service' or 'method'`), `add "service", "method" or both`},
		{regexp.MustCompile(`^Hostnames cannot contain an IP`), `use a DNS name; a route without hostnames takes every name of its listener`},
		{regexp.MustCompile(`must match '.*\(h\|m\|s\|ms\)`), `write a duration such as 10s, 1m30s or 500ms`},
		{regexp.MustCompile(`must match '\^\[1-9\]\+\[0-9\]\*\(\[EPTGMK\]i`), `write a number of bytes above 0, such as 64Ki or 10M`},
		{regexp.MustCompile(`must match '\^\(System\|`), `write System, or a name that begins with a domain, as in example.com/name`},
		{regexp.MustCompile(`must match '\^\[A-Za-z0-9!#`), `write the name of a header field: letters, digits and "-", without spaces`},
		{regexp.MustCompile(`must match '\^\[!-~\]\+`), `write visible ASCII characters, with single spaces between words`},
		{regexp.MustCompile(`must match '.*\\/\[A-Za-z0-9\\/`), `write a domain and a path, as in moongate.dev/gateway-controller`},
		{regexp.MustCompile(`must match '\^\(\\\+\|-\)\?\(\(\[0-9\]\+`), `write a quantity, such as 500m of a core or 128Mi of memory`},
		{regexp.MustCompile(`must match '\(\^\\\*\$\)\|\(\^\(http`), `write scheme and host, as in https://*.example.com, or "*"`},
		{regexp.MustCompile(`must match '\^\(\\\*\\\.\)\?\[a-z0-9\]`), `write a DNS name in lower case, without port; "*." may come first`},
		{regexp.MustCompile(`must match '\^\[a-z0-9\]\(\[-a-z0-9\]\*\[a-z0-9\]\)\?`), `use lower case letters and digits, with '-' or '.' between them, as in app-1`},
		{regexp.MustCompile(`^must (?:match|be valid)|(?:must|or) (?:only )?contain (?:only )?valid characters|must be in the form|RFC[- ]1[01]23|RFC[- ]1035`), `rename it so that it fits`},
		{regexp.MustCompile(`^must be (less|greater) than( or equal to)? (-?\d+)`), `use a number $1 than$2 $3`},
		{regexp.MustCompile(`^must be at least (\d+) chars`), `write at least $1 character(s)`},
		{regexp.MustCompile(`^must be at most (\d+) chars`), `write at most $1 characters`},
		{regexp.MustCompile(`^must have at least (\d+) properties`), `set at least $1 of its fields`},
		{regexp.MustCompile(`^must have at least (\d+)`), `add entries until there are at least $1, or remove the field`},
		{regexp.MustCompile(`^must have at most (\d+)`), `remove entries until there are at most $1`},
		{regexp.MustCompile(`between (\d+) and (\d+)`), `use a number between $1 and $2`},
		{regexp.MustCompile(`^(\w+) must be set exactly where type is (\w+)`), `set "$1" with "type: $2", and with that one alone`},
		{regexp.MustCompile(`^(\w+) must be set where (\w+) is (\w+)`), `set "$1" with "$2: $3"`},
		{regexp.MustCompile(`^(\w+) can be set where type is (\w+)`), `remove "$1", or set "type: $2"`},
		{regexp.MustCompile(`^([\w.]+) and ([\w.]+) cannot both be set`), `remove "$1" or "$2"`},
		{regexp.MustCompile(`^(\w+) and (\w+) cannot be set where`), `remove "$1" and "$2"`},
		{regexp.MustCompile(`^(?:exactly )?one of (.*) must be set`), `set one of $1`},
		{regexp.MustCompile(`^this policy can only have an? ([\w.*\[\]]+) of (.*)`), `use $2`},
		{regexp.MustCompile(`^either targetRef or targetRefs must be set`), `name in "targetRefs" what the policy is for`},
		{regexp.MustCompile(`^([\w.]+) is for the types (.*)`), `remove "$1", or set "type" to one of $2`},
		{regexp.MustCompile(`^([\w.]+) is for (?:global|HTTP)`), `remove "$1"`},
		{regexp.MustCompile(`^([\w.]+) needs an? (.*)|^([\w.]+) needs (.*)`), `use $2$4, or remove "$1$3"`},
		{regexp.MustCompile(`^two (\w+) need (\w+) (\w+) or (\w+)$`), `set "$2" to $3 or $4, or leave one of "$1"`},
		{regexp.MustCompile(`^([a-z]\w*) must be (at least|less than|greater than) (\w+)$`), `make "$1" $2 $3`},
		{regexp.MustCompile(`^mergeType can only|^Replace is what`), `remove "mergeType"`},
		{regexp.MustCompile(`^valueRef must be to a ConfigMap`), `set "kind: ConfigMap"`},
		{regexp.MustCompile(`^only (\w+) is supported`), `set "type: $1"`},
		{regexp.MustCompile(`^([\w.]+) is not supported`), `remove "$1"`},
		{regexp.MustCompile(`^group must be ([\w.]+)`), `write "group: $1", or leave it out`},
		{regexp.MustCompile(`^matches must have`), `add "Success" or "HealthyTransition" to a failure, or "Failure" or "FailureSeriesStart" to a success`},
	}
})

type remedyRule struct {
	message *regexp.Regexp
	remedy  string
}

// remedy returns the remedy for a rule's own message (detail) or our form of it.
func remedy(detail, message string) string {
	for _, text := range []string{detail, message, message[max(0, strings.Index(message, "must ")):]} {
		for _, r := range remedies() {
			if m := r.message.FindStringSubmatchIndex(text); m != nil {
				return string(r.message.ExpandString(nil, r.remedy, text, m))
			}
		}
	}
	return "change the field so that this holds"
}
