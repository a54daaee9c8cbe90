package backendtraffic

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// maxUpgrades limits the list, which is searched for each request that asks for an upgrade.
const maxUpgrades = 32

// httpUpgrade reads the protocols that requests may switch to. An empty list allows none, as in Envoy Gateway.
func (r *reader) httpUpgrade(s *eg.Settings) (out []*config.Upgrade) {
	if len(s.HTTPUpgrade) > 0 && s.RequestBuffer != nil {
		r.invalid("httpUpgrade", "remove it, or requestBuffer", "no protocol is switched where requests are read whole")
	}
	if len(s.HTTPUpgrade) > maxUpgrades {
		r.invalid("httpUpgrade", fmt.Sprintf("name at most %d", maxUpgrades), "it has %d protocols", len(s.HTTPUpgrade))
		return nil
	}
	for i, u := range s.HTTPUpgrade {
		field := fmt.Sprintf("httpUpgrade[%d]", i)
		one := &config.Upgrade{Type: strings.ToLower(u.Type)}
		if strings.EqualFold(u.Type, config.UpgradeConnect) {
			one.Type = config.UpgradeConnect
			one.Terminate = u.Connect != nil && ptr.Deref(u.Connect.Terminate, false)
		} else {
			if why := config.CheckUpgrade(u.Type); why != "" {
				r.invalid(field+".type", "name a protocol such as websocket or spdy/3.1, or CONNECT", "%q %s", u.Type, why)
			}
			if u.Connect != nil {
				r.invalid(field+".connect", "remove it, or make the type CONNECT", "%s is not opened by the method CONNECT", u.Type)
			}
		}
		if slices.ContainsFunc(out, func(o *config.Upgrade) bool { return o.Type == one.Type }) {
			r.invalid(field+".type", "name each protocol once", "%q is there twice", u.Type)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b *config.Upgrade) int { return strings.Compare(a.Type, b.Type) })
	return out
}
