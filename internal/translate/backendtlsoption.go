package translate

import (
	"fmt"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/tlsoption"
)

// readOptions reads spec.options into c, and adds what is wrong with them to b.
func (b *backendTLS) readOptions(options tlsoption.Options, c *config.BackendTLS) {
	limits, foreign := tlsoption.Read(options, func(key gwv1.AnnotationKey, remedy, format string, args ...any) {
		b.invalid(gwv1.PolicyReasonInvalid, fmt.Sprintf("spec.options[%q]", key), remedy, format, args...)
	})
	c.MinVersion, c.CipherSuites = limits.MinVersion, limits.CipherSuites
	if len(foreign) > 0 {
		b.Notes = append(b.Notes, fmt.Sprintf("spec.options: ignored, because only those of %s are known: %q", tlsoption.Domain, foreign))
	}
}
