package explain

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// upgradesOf describes the protocols that a BackendTrafficPolicy allows requests of a rule to switch to.
func upgradesOf(t *config.RuleTraffic) (lines []string) {
	if !t.UpgradesSet {
		return nil
	}
	var names, also []string
	for _, u := range t.Upgrades {
		switch {
		case u.Type != config.UpgradeConnect:
			names = append(names, u.Type)
		case u.Terminate:
			also = append(also, "CONNECT opens a tunnel to a backend")
		default:
			also = append(also, "CONNECT is sent on to a backend")
		}
	}
	if len(names) > 0 {
		also = append([]string{"requests may switch to " + strings.Join(names, ", ") + " and to nothing else"}, also...)
	} else {
		also = append([]string{"requests switch to no other protocol"}, also...)
	}
	return []string{strings.Join(also, "; ")}
}

// connects reports whether the method is CONNECT.
func (d *decision) connects() bool { return string(d.req.Method) == http.MethodConnect }

// connectOf returns the rule's setting for CONNECT, nil if it is not allowed.
func (d *decision) connectOf() *config.Upgrade {
	t := d.rule.Config.GetTraffic()
	if i := slices.IndexFunc(t.GetUpgrades(), func(u *config.Upgrade) bool { return u.Type == config.UpgradeConnect }); i >= 0 && t.UpgradesSet {
		return t.Upgrades[i]
	}
	return nil
}

// takesConnect answers a CONNECT that the rule does not allow.
func (d *decision) takesConnect() bool {
	if d.connectOf() == nil {
		d.answerWith(observe.ReasonNotImplemented, "a rule takes CONNECT where httpUpgrade of its BackendTrafficPolicy has that type")
		return false
	}
	return true
}

// terminates reports whether a CONNECT ends at the gateway.
func (d *decision) terminates() bool { return d.connects() && d.connectOf().GetTerminate() }

// upgrade describes what happens to a request that asks to switch to another protocol, or to open a tunnel.
func (d *decision) upgrade(b *upstream.Backend) string {
	switch {
	case d.connection():
		return ""
	case d.terminates():
		return "receives the bytes that follow the request, but not the request itself"
	case d.head.Upgrade == nil || d.head.Framing == http1.Chunked || d.head.ContentLength > 0:
		return ""
	}
	protocol := string(d.head.Upgrade)
	if d.rule.Config.GetTraffic().GetRequestBufferBytes() > 0 {
		return fmt.Sprintf("is not asked to switch to %s (%s): requestBuffer reads the bodies of requests whole", protocol, observe.ReasonUpgradeIgnored)
	}
	if t := d.rule.Config.GetTraffic(); t.GetUpgradesSet() {
		return d.listedUpgrade(b, t, protocol)
	}
	if d.ask.method != http.MethodGet {
		return ""
	}
	if b.Upgrades(d.head.Upgrade) {
		return "is asked to switch to " + protocol
	}
	remedy := "that protocol is not supported"
	if names := config.UpgradeAppProtocols(protocol); names != nil {
		c := b.Config()
		remedy = fmt.Sprintf("set appProtocol of port %d of Service %s/%s to %s", c.Port, c.Namespace, c.Name, strings.Join(names, " or "))
		if strings.HasPrefix(c.Key, "XBackend/") {
			remedy = fmt.Sprintf("set protocol of XBackend %s/%s to WSS", c.Namespace, c.Name)
		}
	} else if config.CheckUpgrade(protocol) == "" {
		remedy = "name it in httpUpgrade of a BackendTrafficPolicy"
	}
	return fmt.Sprintf("is not asked to switch to %s (%s): %s", protocol, observe.ReasonUpgradeIgnored, remedy)
}

// listedUpgrade is upgrade if a BackendTrafficPolicy has a list.
func (d *decision) listedUpgrade(b *upstream.Backend, t *config.RuleTraffic, protocol string) string {
	why := ""
	switch {
	case !slices.ContainsFunc(t.Upgrades, func(u *config.Upgrade) bool {
		return u.Type != config.UpgradeConnect && strings.EqualFold(u.Type, protocol)
	}):
		why = "httpUpgrade of " + t.Policy + " does not name it"
	case b.OnlyHTTP2():
		why = "it is reached by HTTP/2 only"
	case strings.EqualFold(protocol, "websocket") && d.ask.method != http.MethodGet:
		why = "a WebSocket begins with GET"
	default:
		return "is asked to switch to " + protocol
	}
	return fmt.Sprintf("is not asked to switch to %s (%s): %s", protocol, observe.ReasonUpgradeIgnored, why)
}
