package resume

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestNewest: a list is of the newest version, or not older than one that is known.
func TestNewest(t *testing.T) {
	for asked, want := range map[string]string{"0": "", "": "", "20": "20"} {
		o := metav1.ListOptions{ResourceVersion: asked, Limit: 5}
		if Newest(&o); o.ResourceVersion != want || o.Limit != 5 {
			t.Errorf("version %q: %+v", asked, o)
		}
	}
}

// TestCheck: a watch goes on from a version that the API server has reached, and from no other one.
func TestCheck(t *testing.T) {
	initial := true
	failed := errors.New("refused")
	for _, c := range []struct {
		what    string
		watch   metav1.ListOptions
		server  string
		err     error
		expired bool
		asked   bool
	}{
		{"from the beginning", metav1.ListOptions{}, "5", nil, false, false},
		{"with all that is there", metav1.ListOptions{ResourceVersion: "9", SendInitialEvents: &initial}, "5", nil, false, false},
		{"from an earlier version", metav1.ListOptions{ResourceVersion: "19"}, "20", nil, false, true},
		{"from the newest", metav1.ListOptions{ResourceVersion: "20"}, "20", nil, false, true},
		{"from one that is not reached", metav1.ListOptions{ResourceVersion: "21"}, "20", nil, true, true},
		{"from one with more digits", metav1.ListOptions{ResourceVersion: "100"}, "20", nil, true, true},
		{"of a server without numbers", metav1.ListOptions{ResourceVersion: "21"}, "a", nil, false, true},
		{"of a server that does not answer", metav1.ListOptions{ResourceVersion: "21"}, "", failed, false, true},
	} {
		asked := false
		err := Check(t.Context(), c.watch, func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if asked = true; o.Limit != 1 || o.ResourceVersion != "" {
				t.Errorf("%s: asked for %+v", c.what, o)
			}
			return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: c.server}}, c.err
		})
		if apierrors.IsResourceExpired(err) != c.expired || errors.Is(err, failed) != (c.err != nil) || asked != c.asked || (err == nil) != (!c.expired && c.err == nil) {
			t.Errorf("%s: %v, asked %t", c.what, err, asked)
		}
	}
}
