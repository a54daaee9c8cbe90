package snapshot

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestCompileUpgrades: without a list the rule says nothing, and an empty one allows nothing.
func TestCompileUpgrades(t *testing.T) {
	if u, err := compileUpgrades(nil); u != nil || err != nil {
		t.Errorf("without a policy: %v, %v", u, err)
	}
	if u, err := compileUpgrades(&config.RuleTraffic{Upgrades: []*config.Upgrade{{Type: "websocket"}}}); u != nil || err != nil {
		t.Errorf("not set: %v, %v", u, err)
	}
	for _, tc := range []struct {
		list    []*config.Upgrade
		allows  map[string]bool
		connect Connect
	}{
		{nil, map[string]bool{"websocket": false}, RefuseConnect},
		{[]*config.Upgrade{{Type: "spdy/3.1"}, {Type: "websocket"}}, map[string]bool{"WebSocket": true, "SPDY/3.1": true, "spdy": false, "spdy/3": false, "connect": false, "": false}, RefuseConnect},
		{[]*config.Upgrade{{Type: "CONNECT"}}, map[string]bool{"CONNECT": false, "websocket": false}, ForwardConnect},
		{[]*config.Upgrade{{Type: "CONNECT", Terminate: true}, {Type: "websocket"}}, map[string]bool{"websocket": true}, TerminateConnect},
	} {
		u, err := compileUpgrades(&config.RuleTraffic{UpgradesSet: true, Upgrades: tc.list})
		if err != nil || u.Connect != tc.connect {
			t.Errorf("%v: %v, CONNECT %v", tc.list, err, u)
			continue
		}
		for name, want := range tc.allows {
			if u.Allows([]byte(name)) != want {
				t.Errorf("%v allows %q: %v", tc.list, name, !want)
			}
		}
	}
	for _, bad := range []string{"", "h2c", "HTTP/2", "tls/1.3", "a b", "a/b/c", "connect\r\n"} {
		if _, err := compileUpgrades(&config.RuleTraffic{UpgradesSet: true, Upgrades: []*config.Upgrade{{Type: bad}}}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
