// Package tlsoption reads the options of listeners (spec.listeners[].tls.options) and of BackendTLSPolicies (spec.options) that
// restrict TLS. It exists so that both have the same keys and values. It does not depend on statuses: the caller reports what is
// refused.
package tlsoption

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// The keys. Keys of other domains are for other implementations.
const (
	Domain       = "moongate.dev/"
	MinVersion   = gwv1.AnnotationKey(Domain + "tls-min-version")
	CipherSuites = gwv1.AnnotationKey(Domain + "tls-cipher-suites")
)

// Limits are the restrictions; the zero value restricts nothing.
type Limits struct {
	MinVersion   uint32   // as encoded in the handshake (RFC 8446 section 4.2.1), 0x0303 or 0x0304; 0 means the data plane's default
	CipherSuites []uint32 // of TLS 1.2, by IANA number, sorted; empty means the data plane's default
}

// Refuse is called with an option that cannot be applied, and the remedy.
type Refuse func(key gwv1.AnnotationKey, remedy, format string, args ...any)

// Options is the type of both fields.
type Options = map[gwv1.AnnotationKey]gwv1.AnnotationValue

// versions are the values of MinVersion.
var versions = map[gwv1.AnnotationValue]uint32{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// suites are those that CipherSuites can name: of TLS 1.2, with forward secrecy, and allowed in HTTP/2 (RFC 9113 appendix A). Those
// of TLS 1.3 cannot be selected.
var suites = func() map[string]uint32 {
	suites := map[string]uint32{}
	for _, s := range tls.CipherSuites() {
		if strings.HasPrefix(s.Name, "TLS_ECDHE_") && !strings.Contains(s.Name, "_CBC_") && slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			suites[s.Name] = uint32(s.ID)
		}
	}
	return suites
}()

// Read reads options. further are keys of Domain that the caller reads itself; foreign are keys of other domains, sorted.
func Read(options Options, refuse Refuse, further ...gwv1.AnnotationKey) (l Limits, foreign []gwv1.AnnotationKey) {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		switch value := options[key]; {
		case key == MinVersion:
			version, known := versions[value]
			if !known {
				refuse(key, `use "1.2" or "1.3"`, "%q is not a version of TLS that is supported", value)
			}
			l.MinVersion = version
		case key == CipherSuites:
			l.CipherSuites = readCipherSuites(string(value), refuse)
		case slices.Contains(further, key):
		case strings.HasPrefix(string(key), Domain):
			known := []string{string(MinVersion), string(CipherSuites)}
			for _, k := range further {
				known = append(known, string(k))
			}
			refuse(key, "use "+condition.AnyOf(known)+", or remove it", "the option is not known")
		default:
			foreign = append(foreign, key)
		}
	}
	if l.MinVersion == tls.VersionTLS13 && len(l.CipherSuites) > 0 {
		refuse(CipherSuites, "remove it", "cipher suites are chosen for TLS 1.2, which %s rules out", MinVersion)
	}
	return l, foreign
}

func readCipherSuites(text string, refuse Refuse) (ids []uint32) {
	for _, name := range List(text) {
		id, known := suites[name]
		if !known {
			refuse(CipherSuites, "use "+condition.AnyOf(slices.Sorted(maps.Keys(suites))), "%q is not a cipher suite that can be chosen", name)
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids) // the order has no meaning
	return slices.Compact(ids)
}

// List splits a value at its commas.
func List(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
