package provision

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// TestLogFormat: proxies write their logs as the controller does, and get no flag that an earlier version does not know where nobody asks for it.
func TestLogFormat(t *testing.T) {
	for _, format := range []string{"", "json"} {
		s := settings
		s.LogFormat = format
		objects, err := Objects(&translate.ProxySpec{Namespace: "n", Name: "gw"}, s)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(objects, func(o Object) bool { _, is := o.(*appsv1.Deployment); return is })
		args := objects[at].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args
		if got := slices.Contains(args, "--log-format="+format); got != (format != "") {
			t.Errorf("%q: %q", format, args)
		}
	}
}
