package kind

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
)

// ReadFormerSession adds to the session persistence of a rule what it has in the fields of versions before v1.7.0 of the Gateway API
// (GEP-1619), which the Go type no longer has. The present fields take precedence.
func ReadFormerSession(s *gwv1.SessionPersistence, former *gwx.SessionPersistence) {
	switch {
	case former == nil || s.Cookie != nil || s.Header != nil:
	case s.Type != nil && *s.Type == gwv1.HeaderBasedSessionPersistence:
		if former.SessionName != nil {
			s.Header = &gwv1.HeaderConfig{Name: gwv1.HeaderName(*former.SessionName)}
		}
	case former.SessionName != nil || former.CookieConfig != nil:
		s.Cookie = &gwv1.CookieConfig{Name: (*gwv1.CookieName)(former.SessionName)}
		if former.CookieConfig != nil {
			s.Cookie.LifetimeType = former.CookieConfig.LifetimeType
		}
	}
}
