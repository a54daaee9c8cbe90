package kind

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AuthoritiesKey is where a ConfigMap has certificates to verify others by.
const AuthoritiesKey = "ca.crt"

// keepConfigMap takes of a ConfigMap the certificates: most have none, and may have a megabyte of something else. Every namespace has
// those of the API server in a ConfigMap of its own (kube-root-ca.crt), of which one text is kept.
func keepConfigMap(obj runtime.Object) metav1.Object {
	o := obj.(*corev1.ConfigMap)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	if text, has := o.Data[AuthoritiesKey]; has {
		kept.Data = map[string]string{AuthoritiesKey: unique.Make(text).Value()}
	}
	return kept
}
