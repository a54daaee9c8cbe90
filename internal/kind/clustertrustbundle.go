package kind

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// keepClusterTrustBundle takes the certificates of a ClusterTrustBundle, of which an API server takes 1 MiB at most.
func keepClusterTrustBundle(obj runtime.Object) metav1.Object {
	o := obj.(*certificatesv1.ClusterTrustBundle)
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{TrustBundle: texts.share(o.Spec.TrustBundle)},
	}
}

// trustBundleName is the rule for names of ClusterTrustBundles: a bundle of a signer has the signer's name, with ":" for "/", and another ":" before
// what is a DNS subdomain.
func trustBundleName(name string, prefix bool) []string {
	return validation.NameIsDNSSubdomain(name[strings.LastIndexByte(name, ':')+1:], prefix)
}
