//go:build nodrop

package nodrop

import (
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestClassChange changes the class of a Gateway, and back: its clients are served at the address of before until the next one is.
func TestClassChange(t *testing.T) {
	w := open(t)
	w.setUp(t)
	cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata/class.yaml"))
	former := "moongate"
	for _, class := range []string{"second", "moongate"} {
		w.scenario(t, "to class "+class, func(t *testing.T, l *traffic) {
			l.phase("change")
			patch := fmt.Appendf(nil, `{"spec":{"gatewayClassName":%q}}`, class)
			if _, err := w.gateways.GatewayV1().Gateways(namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			w.moved(t, "web")
		})
		w.address = w.programmed(t, namespace, "web")
		w.gone(t, namespace, "web-"+former)
		former = class
	}
}
