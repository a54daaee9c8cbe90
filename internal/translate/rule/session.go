package rule

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// maxSessionTimeout replaces a longer timeout: a key that signs session tokens is kept for as long, see certificate.SessionSecrets.
const maxSessionTimeout = 360 * 24 * time.Hour

// notSessions are fields that cannot carry a session, in addition to reserved: the gateway writes or replaces them, or other
// software interprets them.
var notSessions = []string{"authorization", "content-type", "cookie", "date", "forwarded", "host", "set-cookie", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id"}

// SessionPersistence reads spec, whose path is field, in either of its two forms. owner is the object, or the part of one, that
// contains it: a default name is derived from it. A problem's reason is one of routes.
func SessionPersistence(spec *gwx.SessionPersistence, field, owner string) (*config.SessionPersistence, *condition.Problem) {
	wrong := func(at, remedy, format string, args ...any) (*config.SessionPersistence, *condition.Problem) {
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+at, remedy, format, args...)
	}
	out := &config.SessionPersistence{Name: ptr.Deref(spec.SessionName, ""), Path: "/", Source: owner}
	nameField, lifetimeField := ".sessionName", ".cookieConfig.lifetimeType"
	lifetime := gwv1.SessionCookieLifetimeType
	switch t := ptr.Deref(spec.Type, gwv1.CookieBasedSessionPersistence); t {
	case gwv1.CookieBasedSessionPersistence:
		if c := spec.Cookie; c != nil {
			nameField, lifetimeField = ".cookie.name", ".cookie.lifetimeType"
			out.Name, out.Path, lifetime = string(ptr.Deref(c.Name, "")), ptr.Deref(c.Path, "/"), ptr.Deref(c.LifetimeType, lifetime)
		} else if c := spec.CookieConfig; c != nil {
			lifetime = ptr.Deref(c.LifetimeType, lifetime)
		}
	case gwv1.HeaderBasedSessionPersistence:
		out.Header, out.Path = true, ""
		if h := spec.Header; h != nil {
			nameField, out.Name = ".header.name", string(h.Name)
		}
	default:
		return wrong(".type", "use Cookie or Header", "%q is not known", t)
	}
	for _, d := range []struct {
		at   string
		from *gwv1.Duration
		to   *int64
	}{{".absoluteTimeout", spec.AbsoluteTimeout, &out.AbsoluteTimeoutNanos}, {".idleTimeout", spec.IdleTimeout, &out.IdleTimeoutNanos}} {
		if d.from == nil {
			continue
		}
		length, err := time.ParseDuration(string(*d.from))
		if err != nil || !durationFormat.MatchString(string(*d.from)) || length <= 0 {
			return wrong(d.at, "write a duration such as 30m or 12h", "%q is no duration that a session can last", *d.from)
		}
		*d.to = int64(min(length, maxSessionTimeout))
	}
	switch lifetime {
	case gwv1.SessionCookieLifetimeType:
	case gwv1.PermanentCookieLifetimeType:
		if out.Permanent = !out.Header; out.Permanent && spec.AbsoluteTimeout == nil {
			return wrong(".absoluteTimeout", "add it", "a cookie of lifetimeType Permanent lasts for the absoluteTimeout")
		}
	default:
		return wrong(lifetimeField, "use Session or Permanent", "%q is not known", lifetime)
	}
	if out.Name == "" {
		out.Name = generatedName(owner, out.Header)
	}
	switch {
	case !config.IsToken(out.Name):
		return wrong(nameField, "correct it", "%q is not the name of a cookie or a header field", out.Name)
	case out.Header && (isReserved(out.Name) || slices.Contains(notSessions, cginame.Of(out.Name))):
		return wrong(nameField, "use a name of your own", "%s has another meaning, so that it cannot carry a session", out.Name)
	case !out.Header && !config.IsCookiePath(out.Path):
		return wrong(".cookie.path", "begin it with / and leave out semicolons and control characters", "%q cannot be the path of a cookie", out.Path)
	case strings.HasPrefix(out.Name, "__Host-") && out.Path != "/":
		return wrong(".cookie.path", "use /, or another name", "clients keep a cookie named %s with path / alone", out.Name)
	}
	return out, nil
}

// generatedName returns a name that is unique for the owner.
func generatedName(owner string, header bool) string {
	sum := sha256.Sum256([]byte(owner))
	if header {
		return fmt.Sprintf("Moongate-Session-%x", sum[:6])
	}
	return fmt.Sprintf("moongate_session_%x", sum[:6])
}

// sessionPersistence compiles the session persistence of the rule itself.
func (s *scope) sessionPersistence() *condition.Problem {
	spec := s.spec.SessionPersistence
	if spec == nil {
		return nil
	}
	owner := fmt.Sprintf("%s rule %d", s.spec.Route, s.rule.Index)
	if s.rule.Name != "" { // the name does not change when rules before it are added or removed
		owner = fmt.Sprintf("%s rule %s", s.spec.Route, s.rule.Name)
	}
	compiled, p := SessionPersistence(&gwx.SessionPersistence{
		AbsoluteTimeout: spec.AbsoluteTimeout, Type: spec.Type, Cookie: spec.Cookie, Header: spec.Header,
	}, s.field+".sessionPersistence", owner)
	if p != nil {
		return p
	}
	s.rule.SessionPersistence = compiled
	return nil
}
