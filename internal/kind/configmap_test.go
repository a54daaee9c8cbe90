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

// TestKeptOfConfigMaps: nothing but certificates and the body of a response, though a ConfigMap without any is there too: a reference to it says so.
func TestKeptOfConfigMaps(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "x", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}}
	for _, c := range []struct{ data, want map[string]string }{
		{map[string]string{"ca.crt": "certificates", "large": strings.Repeat("x", 1000)}, map[string]string{"ca.crt": "certificates"}},
		{map[string]string{"b": "second", "a": "first", "ca.crt": "certificates"}, map[string]string{"a": "first", "ca.crt": "certificates"}},
		{map[string]string{"a": "first", "response.body": "sorry"}, map[string]string{"response.body": "sorry"}},
		{map[string]string{"a": "first", "response.body": strings.Repeat("x", 4096)}, map[string]string{"response.body": strings.Repeat("x", 4096)}},
		{map[string]string{"a": "first", "response.body": strings.Repeat("x", 4097)}, map[string]string{"response.body bytes": "4097"}},
		{map[string]string{"ca.crt": "certificates", "ca.crl": "lists"}, map[string]string{"ca.crt": "certificates", "ca.crl": "lists"}},
		{map[string]string{"ca.crl": "lists"}, map[string]string{"ca.crl": ""}},
		{map[string]string{"ca.crt": ""}, map[string]string{"ca.crt": ""}},
		{map[string]string{"large": strings.Repeat("x", 1<<20)}, map[string]string{"large bytes": "1048576"}},
		{map[string]string{}, nil},
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

// TestResponseBody: a kept ConfigMap has the same body as the whole one, or says how long it is.
func TestResponseBody(t *testing.T) {
	long := strings.Repeat("x", 4097)
	for _, c := range []struct {
		data      map[string]string
		key, text string
		size      int
	}{
		{nil, "", "", 0},
		{map[string]string{"ca.crl": "lists"}, "", "", 0},
		{map[string]string{"b": "second", "a": "first"}, "a", "first", 5},
		{map[string]string{"a": "first", "response.body": "sorry"}, "response.body", "sorry", 5},
		{map[string]string{"a": "first", "response.body": ""}, "response.body", "", 0},
		{map[string]string{"a": "first", "response.body": long}, "response.body", "", 4097},
		{map[string]string{"z": long}, "z", "", 4097},
		{map[string]string{"a": long, "ca.crt": "certificates"}, "a", "", 4097},
		{map[string]string{"ca.crt": "certificates"}, "ca.crt", "certificates", 12},
		{map[string]string{"ca.crt": strings.Repeat("x", MaxAuthoritiesBytes+1)}, "ca.crt", "", MaxAuthoritiesBytes + 1},
	} {
		whole := &corev1.ConfigMap{Data: c.data}
		for _, cm := range []*corev1.ConfigMap{whole, ConfigMap.Keep(whole).(*corev1.ConfigMap)} {
			key, text, size := ResponseBody(cm)
			if key != c.key || size != c.size || size <= MaxResponseBodyBytes && text != c.text {
				t.Errorf("%.60v: got %q, %.20q, %d; want %q, %.20q, %d", cm.Data, key, text, size, c.key, c.text, c.size)
			}
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
