package backendtraffic

import (
	"testing"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// TestMergedUpgrades: a protocol is the same in any case of its name.
func TestMergedUpgrades(t *testing.T) {
	child, parent := specOf(t, "mergeType: StrategicMerge\nhttpUpgrade: [{type: WebSocket}]"), specOf(t, "httpUpgrade: [{type: websocket}, {type: spdy/3.1}]")
	merged, err := Merge(child, parent)
	if err != nil {
		t.Fatal(err)
	}
	compiled, p := Compile(merged, "", "n/p", nil)
	if p != nil {
		t.Fatal(p)
	}
	if got := compiled.Rule.Traffic.Upgrades; len(got) != 2 || got[0].Type != "spdy/3.1" || got[1].Type != "websocket" {
		t.Errorf("merged into %v", got)
	}
	if child.HTTPUpgrade[0].Type != "WebSocket" || len(parent.HTTPUpgrade) != 2 {
		t.Error("the policies have changed")
	}
	var none eg.BackendTrafficPolicySpec
	if merged, err := Merge(&none, &none); err != nil || merged.HTTPUpgrade != nil {
		t.Errorf("of none: %v, %v", merged, err)
	}
}
