package kind

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKeptOfConfigMaps: nothing but certificates, though a ConfigMap without any is there too: a reference to it says so.
func TestKeptOfConfigMaps(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "x", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}}
	for _, c := range []struct{ data, want map[string]string }{
		{map[string]string{"ca.crt": "certificates", "large": strings.Repeat("x", 1000)}, map[string]string{"ca.crt": "certificates"}},
		{map[string]string{"ca.crt": ""}, map[string]string{"ca.crt": ""}},
		{map[string]string{"large": "x"}, nil},
	} {
		got := ConfigMap.Keep(&corev1.ConfigMap{ObjectMeta: meta, Data: c.data, BinaryData: map[string][]byte{"more": {1}}})
		want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}, Data: c.want}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of %v is kept %v, want %v", c.data, got, want)
		}
	}
}
