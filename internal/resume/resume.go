// Package resume decides whether a watch of an API server can continue from the version at which it ended. It exists because three
// parts watch, and each would otherwise trust an API server whose data was restored from a backup.
//
// It imports no other package of Moongate.
package resume

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Check returns why a watch with these options must not be started, or nil. An API server would wait until it reaches the version
// from which a watch continues, and omit what happens before. So if the server only has earlier versions, Check returns
// ResourceExpired, which makes a reflector list everything again. Other errors are those of list, which is called for at most one
// object. It must be called before the watch starts: afterwards the version would not be known.
func Check(ctx context.Context, watch metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) error {
	if watch.SendInitialEvents != nil || watch.ResourceVersion == "" { // it begins with a list
		return nil
	}
	newest, err := list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	meta, err := apimeta.ListAccessor(newest)
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(meta.GetResourceVersion(), watch.ResourceVersion); err == nil && order < 0 { // otherwise they cannot be compared
		return apierrors.NewResourceExpired("the API server has only earlier versions: were its data restored from a backup?")
	}
	return nil
}
