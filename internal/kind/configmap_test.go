package kind

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKeptOfConfigMaps: nothing but certificates, though a ConfigMap without any is there too: a reference to it says so.
func TestKeptOfConfigMaps(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "x", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}}
	for _, c := range []struct{ data, want map[string]string }{
		{map[string]string{"ca.crt": "certificates", "large": strings.Repeat("x", 1000)}, map[string]string{"ca.crt": "certificates"}},
		{map[string]string{"ca.crt": "certificates", "ca.crl": "lists"}, map[string]string{"ca.crt": "certificates", "ca.crl": "lists"}},
		{map[string]string{"ca.crl": "lists"}, map[string]string{"ca.crl": ""}},
		{map[string]string{"ca.crt": ""}, map[string]string{"ca.crt": ""}},
		{map[string]string{"large": "x"}, nil},
		{map[string]string{"ca.crt": strings.Repeat("x", MaxAuthoritiesBytes)}, map[string]string{"ca.crt": strings.Repeat("x", MaxAuthoritiesBytes)}},
		{map[string]string{"ca.crt": strings.Repeat("x", MaxAuthoritiesBytes+1)}, map[string]string{AuthoritiesTooLarge: "524289"}},
		{map[string]string{"ca.crt": strings.Repeat("x", MaxAuthoritiesBytes+1), "ca.crl": "lists"}, map[string]string{AuthoritiesTooLarge: "524289", "ca.crl": ""}},
	} {
		got := ConfigMap.Keep(&corev1.ConfigMap{ObjectMeta: meta, Data: c.data, BinaryData: map[string][]byte{"more": {1}}})
		want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}, Data: c.want}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of %v is kept %v, want %v", c.data, got, want)
		}
	}
}

// TestTextsAreShared: what many ConfigMaps have is kept once, also when they come long after each other and others between them.
func TestTextsAreShared(t *testing.T) {
	keep := func(text string) *byte {
		kept := ConfigMap.Keep(&corev1.ConfigMap{Data: map[string]string{AuthoritiesKey: strings.Clone(text)}})
		return unsafe.StringData(kept.(*corev1.ConfigMap).Data[AuthoritiesKey])
	}
	common := strings.Repeat("authorities of the API server", 50)
	first := keep(common)
	for i := range 100 {
		runtime.GC()
		keep(fmt.Sprint("others", i))
		if keep(common) != first {
			t.Fatalf("after %d others the text is there twice", i+1)
		}
	}
}
