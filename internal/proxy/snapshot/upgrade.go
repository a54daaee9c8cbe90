package snapshot

import (
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Upgrades is what requests of a rule may switch to.
type Upgrades struct {
	protocols [][]byte
	Connect   Connect
}

// Connect is how a request with the method CONNECT is handled.
type Connect uint8

// The values of Connect.
const (
	RefuseConnect    Connect = iota
	ForwardConnect           // the backend is sent the request, and decides
	TerminateConnect         // the gateway answers, and the backend only gets the bytes of the tunnel
)

func compileUpgrades(c *config.RuleTraffic) (*Upgrades, error) {
	if !c.GetUpgradesSet() {
		return nil, nil
	}
	u := &Upgrades{}
	for _, p := range c.Upgrades {
		if p.Type == config.UpgradeConnect {
			u.Connect = ForwardConnect
			if p.Terminate {
				u.Connect = TerminateConnect
			}
			continue
		}
		if why := config.CheckUpgrade(p.Type); why != "" {
			return nil, fmt.Errorf("upgrades: %q %s", p.Type, why)
		}
		u.protocols = append(u.protocols, []byte(p.Type))
	}
	return u, nil
}

// Allows reports whether requests may switch to a protocol, whose name is compared without regard to case.
func (u *Upgrades) Allows(protocol []byte) bool {
	for _, p := range u.protocols {
		if message.EqualFoldBytes(p, protocol) {
			return true
		}
	}
	return false
}

// Connect returns how a matched request with the method CONNECT is handled.
func (r *Rule) Connect() Connect {
	if r.Upgrades == nil {
		return RefuseConnect
	}
	return r.Upgrades.Connect
}
