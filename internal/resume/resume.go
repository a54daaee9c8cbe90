// Package resume decides from which version objects of an API server are listed, and whether a watch can go on from the version at which it ended. It exists because three parts watch, and
// each would otherwise trust an API server whose data were restored from a backup.
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

// Newest has a list return the newest version. A reflector that has no version yet asks for "0", which is whatever the API server's watch cache has: behind a
// load balancer or after a restart that may be older than what this process's predecessor acted on.
func Newest(list *metav1.ListOptions) {
	if list.ResourceVersion == "0" {
		list.ResourceVersion = ""
	}
}

// Check returns why a watch with these options must not be begun, nil where it may. The API server would wait until it reaches the version that a watch is to go on from, and leave
// out what happens before. So one that has only earlier versions is answered for by ResourceExpired, which has a reflector list everything again. Other errors are those
// of list, which is called for one object at most: a watch that began a moment later would not know what the version was.
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
