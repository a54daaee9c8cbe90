package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzDecode feeds the decoder what no API server should send: it must not panic, nor
// return an object that cannot be named.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a","namespace":"b"},"spec":{"hostnames":["x"]}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a"},"spec":{"hostnames":7}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRouteList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":[]},{},null,7]}`,
		`{"apiVersion":"moongate.dev/v1alpha1","kind":"GatewayParameters","metadata":{"name":"a"},"spec":{"drainTimeout":"soon"}}`,
		`{"apiVersion":"v1","kind":"Status"}`, `{}`, `[]`, ``, `{"kind":"HTTPRoute","apiVersion":"gateway.networking.k8s.io/v1","metadata":7}`,
	} {
		f.Add([]byte(seed))
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		f.Fatal("no JSON")
	}
	decoder := codecs.DecoderToVersion(info.Serializer, nil)
	routes := kindNamed("HTTPRoute")
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return
		}
		items := []runtime.Object{obj}
		if mixed, ok := obj.(*mixedList); ok {
			items = mixed.Items
		}
		for _, item := range items {
			switch item := item.(type) {
			case *unreadable:
				if item.Name == "" || item.err == nil {
					t.Errorf("an unreadable object without name or error: %+v", item)
				}
			case metav1.Object:
				gvk, _, err := scheme.ObjectKinds(item.(runtime.Object))
				if err == nil && gvk[0].Kind == routes.name {
					routes.seen(routes.keep(item.(runtime.Object)))
				}
			}
		}
	})
}
