package listener

import (
	"fmt"
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/tlsoption"
)

// optionALPN is a key of tls.options that only listeners have.
const optionALPN = gwv1.AnnotationKey(tlsoption.Domain + "alpn")

// readOptions reads tls.options. An option that cannot be applied makes the listener invalid: it must not be served with weaker
// settings.
func (l *Listener) readOptions(options tlsoption.Options) {
	refuse := func(key gwv1.AnnotationKey, remedy, format string, args ...any) {
		l.invalid(gwv1.ListenerReasonUnsupportedValue, fmt.Sprintf(".tls.options[%q]", key), remedy, format, args...)
	}
	limits, foreign := tlsoption.Read(options, refuse, optionALPN)
	if len(foreign) > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%s.tls.options: ignored, because only those of %s are known: %q", l.Field, tlsoption.Domain, foreign))
	}
	if len(foreign) == len(options) {
		return
	}
	l.TLSOptions = &config.TLSOptions{MinVersion: limits.MinVersion, CipherSuites: limits.CipherSuites}
	if text, ok := options[optionALPN]; ok {
		l.TLSOptions.Alpn = l.alpn(string(text), refuse)
	}
}

// maxALPN is the maximum length of a protocol name in bytes (RFC 7301 section 3.1).
const maxALPN = 255

// alpn reads the protocols that are offered by ALPN. With protocol TLS any name is allowed, because backends implement the
// protocols.
func (l *Listener) alpn(text string, refuse tlsoption.Refuse) (protocols []string) {
	for _, p := range tlsoption.List(text) {
		switch {
		case l.Protocol == gwv1.HTTPSProtocolType && p != "h2" && p != "http/1.1":
			refuse(optionALPN, "use h2 and http/1.1, or one of them", "%q is not a protocol that can be offered", p)
			return nil
		case p == "" || len(p) > maxALPN:
			refuse(optionALPN, "use the names of protocols, with commas between them", "%q is not the name of a protocol", p)
			return nil
		}
		if !slices.Contains(protocols, p) {
			protocols = append(protocols, p)
		}
	}
	return protocols
}
