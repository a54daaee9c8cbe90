package listener

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

// The keys of tls.options that are known. Those of other domains are for other implementations.
const (
	optionPrefix       = "moongate.dev/"
	OptionMinVersion   = optionPrefix + "tls-min-version"
	OptionCipherSuites = optionPrefix + "tls-cipher-suites"
	OptionALPN         = optionPrefix + "alpn"
	tls12, tls13       = "1.2", "1.3"
)

// readOptions reads tls.options. One that cannot be carried out makes the listener invalid: it must not be served with less than was asked for.
func (l *Listener) readOptions(options map[gwv1.AnnotationKey]gwv1.AnnotationValue) {
	o := &config.TLSOptions{}
	var foreign []gwv1.AnnotationKey
	for _, key := range slices.Sorted(maps.Keys(options)) {
		text := string(options[key])
		refuse := func(remedy, format string, args ...any) {
			l.invalid(gwv1.ListenerReasonUnsupportedValue, fmt.Sprintf(".tls.options[%s]", key), remedy, format, args...)
		}
		switch key {
		case OptionMinVersion:
			version, known := map[string]uint32{tls12: tls.VersionTLS12, tls13: tls.VersionTLS13}[text]
			if !known {
				refuse("use "+tls12+" or "+tls13, "%q is no version that can be demanded", text)
			}
			o.MinVersion = version
		case OptionCipherSuites:
			o.CipherSuites = cipherSuites(text, refuse)
			if options[OptionMinVersion] == tls13 {
				refuse("remove it", "with TLS 1.3 alone there is nothing to choose among")
			}
		case OptionALPN:
			o.Alpn = alpn(text, refuse)
		default:
			if strings.HasPrefix(string(key), optionPrefix) {
				refuse("use "+condition.AnyOf([]string{OptionMinVersion, OptionCipherSuites, OptionALPN}), "there is no such option")
				continue
			}
			foreign = append(foreign, key)
		}
	}
	if len(foreign) > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%s.tls.options: ignored, as they are not of %s: %q", l.Field, optionPrefix, foreign))
	}
	if len(foreign) < len(options) {
		l.TLSOptions = o
	}
}

// list parts a text at commas.
func list(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func cipherSuites(text string, refuse func(remedy, format string, args ...any)) (ids []uint32) {
	byName, names := map[string]uint32{}, []string(nil)
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			byName[s.Name] = uint32(s.ID)
			names = append(names, s.Name)
		}
	}
	for _, name := range list(text) {
		id, known := byName[name]
		if !known {
			refuse("use some of "+strings.Join(names, ", "), "%q is no cipher suite of TLS 1.2 that is supported", name)
			return nil
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func alpn(text string, refuse func(remedy, format string, args ...any)) (protocols []string) {
	for _, p := range list(text) {
		if p != "h2" && p != "http/1.1" {
			refuse("use h2 and http/1.1, or one of them", "%q is no protocol that can be offered", p)
			return nil
		}
		if !slices.Contains(protocols, p) {
			protocols = append(protocols, p)
		}
	}
	return protocols
}
