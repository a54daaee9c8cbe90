package cli

import (
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// readFormerSessions converts the session persistence of HTTPRoutes and GRPCRoutes of a cluster from the form of versions before v1.7.0
// of the Gateway API, as the controller does: the schemas of this build, with which objects are read, refuse it.
func readFormerSessions(items []map[string]any) {
	for _, item := range items {
		if item["kind"] != kind.HTTPRoute.Name && item["kind"] != kind.GRPCRoute.Name {
			continue
		}
		spec, _ := item["spec"].(map[string]any)
		rules, _ := spec["rules"].([]any)
		for _, r := range rules {
			rule, _ := r.(map[string]any)
			session, ok := rule["sessionPersistence"].(map[string]any)
			if !ok || session["cookie"] != nil || session["header"] != nil {
				continue
			}
			if now := presentSession(session); now != nil {
				rule["sessionPersistence"] = now
			} else {
				delete(rule, "sessionPersistence")
			}
		}
	}
}

// presentSession returns session persistence in its present form; nil if it has none, because the present form requires the name of a
// header, while the former one leaves it to the gateway.
func presentSession(former map[string]any) map[string]any {
	var s gwv1.SessionPersistence
	var f gwx.SessionPersistence
	if runtime.DefaultUnstructuredConverter.FromUnstructured(former, &s) != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(former, &f) != nil {
		return former
	}
	kind.ReadFormerSession(&s, &f)
	switch header := s.Type != nil && *s.Type == gwv1.HeaderBasedSessionPersistence; {
	case header && s.Header == nil:
		return nil
	case !header && s.Cookie == nil:
		s.Cookie = &gwv1.CookieConfig{}
	}
	now, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return former
	}
	return now
}
