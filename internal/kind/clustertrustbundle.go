package kind

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// keepClusterTrustBundle keeps the certificates of a ClusterTrustBundle; an API server accepts at most 1 MiB.
func keepClusterTrustBundle(obj runtime.Object) metav1.Object {
	o := obj.(*certificatesv1.ClusterTrustBundle)
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{TrustBundle: texts.share(o.Spec.TrustBundle)},
	}
}

// trustBundleName validates names of ClusterTrustBundles: the name of a bundle with a signer begins with the signer's name, with ":"
// instead of "/", and another ":", followed by a DNS subdomain.
func trustBundleName(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name[strings.LastIndexByte(name, ':')+1:], prefix)
}
