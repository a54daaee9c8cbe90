package translate

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// The options of BackendTLSPolicies; keys of other domains are ignored, and unknown ones of ours refused.
const (
	ownOptions         = "moongate.dev/"
	optionMinVersion   = gwv1.AnnotationKey(ownOptions + "tls-min-version")
	optionCipherSuites = gwv1.AnnotationKey(ownOptions + "tls-cipher-suites")
)

// minVersions are the values of optionMinVersion.
var minVersions = map[gwv1.AnnotationValue]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// cipherSuites are the numbers of those that optionCipherSuites can name: of TLS 1.2, with forward secrecy, and allowed in HTTP/2 (RFC 9113 appendix A). Those
// of TLS 1.3 cannot be chosen.
var cipherSuites = func() map[string]uint16 {
	suites := map[string]uint16{}
	for _, s := range tls.CipherSuites() {
		if strings.HasPrefix(s.Name, "TLS_ECDHE_") && !strings.Contains(s.Name, "_CBC_") && slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			suites[s.Name] = s.ID
		}
	}
	return suites
}()

// readOptions reads spec.options into c. What is wrong with them becomes part of b.
func (b *backendTLS) readOptions(options map[gwv1.AnnotationKey]gwv1.AnnotationValue, c *config.BackendTLS) {
	var foreign []gwv1.AnnotationKey
	for _, key := range slices.Sorted(maps.Keys(options)) {
		field := fmt.Sprintf("spec.options[%q]", key)
		switch value := options[key]; {
		case key == optionMinVersion:
			version, known := minVersions[value]
			if !known {
				b.invalid(gwv1.PolicyReasonInvalid, field, `use "1.2" or "1.3"`, "%q is not a version of TLS that can be spoken", value)
			}
			c.MinVersion = uint32(version)
		case key == optionCipherSuites:
			b.readCipherSuites(field, string(value), c)
		case strings.HasPrefix(string(key), ownOptions):
			b.invalid(gwv1.PolicyReasonInvalid, field, fmt.Sprintf("use %s or %s, or remove it", optionMinVersion, optionCipherSuites), "the option is not known")
		default:
			foreign = append(foreign, key)
		}
	}
	if c.MinVersion == tls.VersionTLS13 && len(c.CipherSuites) > 0 {
		b.invalid(gwv1.PolicyReasonInvalid, fmt.Sprintf("spec.options[%q]", optionCipherSuites), "remove it", "cipher suites are chosen for TLS 1.2, which %s rules out", optionMinVersion)
	}
	if len(foreign) > 0 {
		b.Notes = append(b.Notes, fmt.Sprintf("spec.options: ignored, because only those of moongate.dev are known: %q", foreign))
	}
}

// readCipherSuites reads names that are separated by commas.
func (b *backendTLS) readCipherSuites(field, value string, c *config.BackendTLS) {
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		suite, known := cipherSuites[name]
		if !known {
			b.invalid(gwv1.PolicyReasonInvalid, field, "use "+condition.AnyOf(slices.Sorted(maps.Keys(cipherSuites))), "%q is not a cipher suite that can be chosen", name)
		}
		if !slices.Contains(c.CipherSuites, uint32(suite)) {
			c.CipherSuites = append(c.CipherSuites, uint32(suite))
		}
	}
	slices.Sort(c.CipherSuites) // there is no order of preference
}
