//go:build nodrop

package nodrop

import (
	"fmt"
	"testing"
)

// changeVersions lets each build of the controller look after proxies of the other, and
// changes both ways between the two builds.
func (w *world) changeVersions(t *testing.T, l *traffic) {
	for _, step := range []struct{ controller, pinned, proxies string }{
		{previous, current, current}, // only the controllers go back
		{previous, "", previous},
		{current, previous, previous}, // only the controllers are upgraded
		{current, "", current},
	} {
		l.phase(fmt.Sprintf("controllers %s, proxies %s", step.controller, step.proxies))
		if err := install(step.controller, step.pinned); err != nil {
			t.Fatal(err)
		}
		for _, pod := range w.rolledOut(t, system, controller) {
			if got := pod.Spec.Containers[0].Image; got != image(step.controller) {
				t.Errorf("controller %s has image %s", pod.Name, got)
			}
		}
		eventually(t, func() string {
			pods, err := w.pods(t, namespace, proxies)
			if err != nil {
				return err.Error()
			}
			for _, pod := range pods {
				if got := pod.Spec.Containers[0].Image; got != image(step.proxies) {
					return fmt.Sprintf("proxy %s has image %s, not %s", pod.Name, got, image(step.proxies))
				}
			}
			return ""
		})
		w.rolledOut(t, namespace, proxies)
		w.changes(t)
		l.proceed(t)
	}
}
