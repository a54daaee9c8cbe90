package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metadatascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/moongate-dev/moongate/internal/resume"
)

// kindPod is watched and never applied.
const (
	kindPod        = "Pod"
	kindService    = "Service"
	kindDeployment = "Deployment"
	kindDaemonSet  = "DaemonSet"

	kindServiceAccount   = "ServiceAccount"
	kindConfigMap        = "ConfigMap"
	kindDisruptionBudget = "PodDisruptionBudget"
	kindAutoscaler       = "HorizontalPodAutoscaler"
)

// resources are the kinds that are watched, by name.
var resources = map[string]struct {
	version  schema.GroupVersion
	resource string
	empty    Object // of the type
}{
	kindServiceAccount:   {corev1.SchemeGroupVersion, "serviceaccounts", &corev1.ServiceAccount{}},
	kindConfigMap:        {corev1.SchemeGroupVersion, "configmaps", &corev1.ConfigMap{}},
	kindService:          {corev1.SchemeGroupVersion, "services", &corev1.Service{}},
	kindPod:              {corev1.SchemeGroupVersion, "pods", &corev1.Pod{}},
	kindDeployment:       {appsv1.SchemeGroupVersion, "deployments", &appsv1.Deployment{}},
	kindDaemonSet:        {appsv1.SchemeGroupVersion, "daemonsets", &appsv1.DaemonSet{}},
	kindDisruptionBudget: {policyv1.SchemeGroupVersion, "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}},
	kindAutoscaler:       {autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscaler{}},
}

// ownSelector selects objects that a Provisioner has made; those of another installation have another annotation.
const ownSelector = labelManagedBy + "=" + managedBy + "," + labelName + "=" + proxyName

// client accesses the API server for resources. A clientset of all kinds would cost memory in the proxies, which are the same
// program.
type client struct {
	byVersion map[schema.GroupVersion]*rest.RESTClient
	metadata  *rest.RESTClient // of core objects
}

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, autoscalingv2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &client{byVersion: map[schema.GroupVersion]*rest.RESTClient{}}
	for _, r := range resources {
		if c.byVersion[r.version] != nil {
			continue
		}
		if c.byVersion[r.version], err = newRESTClient(config, r.version, serializer.NewCodecFactory(scheme), transport); err != nil {
			return nil, err
		}
	}
	c.metadata, err = newRESTClient(config, corev1.SchemeGroupVersion, metadatascheme.Codecs, transport)
	return c, err
}

func newRESTClient(config *rest.Config, version schema.GroupVersion, codecs serializer.CodecFactory, transport *http.Client) (*rest.RESTClient, error) {
	of := rest.CopyConfig(config)
	of.GroupVersion, of.APIPath = &version, "/apis"
	if version.Group == "" {
		of.APIPath = "/api"
	}
	of.NegotiatedSerializer = codecs.WithoutConversion()
	if of.ContentType == "" {
		of.ContentType, of.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	}
	if of.QPS == 0 {
		of.QPS = -1 // the server's own fairness limits it
	}
	return rest.RESTClientForConfigAndClient(of, transport)
}

// newObject returns an empty object of a kind of resources.
func newObject(kind string) Object { return resources[kind].empty.DeepCopyObject().(Object) }

// listWatch lists and watches one kind in a namespace, or in all for "", and reports the result of each attempt to trouble.
func (c *client) listWatch(kind, namespace string, trouble *trouble) cache.ListerWatcher {
	r := resources[kind]
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.byVersion[r.version].Get().Namespace(namespace).Resource(r.resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Get()
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = ownSelector
			resume.Newest(&options)
			all, err := list(ctx, options)
			trouble.listed(ctx, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := trouble.resume(ctx, options, list); err != nil {
				return nil, err
			}
			options.LabelSelector, options.Watch = ownSelector, true
			events, err := c.byVersion[r.version].Get().Namespace(namespace).Resource(r.resource).VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
			trouble.watched(ctx, err)
			return events, err
		},
	}
}

// resume is resume.Check; its failures are reported to trouble, except those that make a reflector list again.
func (t *trouble) resume(ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) error {
	err := resume.Check(ctx, o, list)
	if err != nil && !apierrors.IsResourceExpired(err) {
		t.watched(ctx, err)
	}
	return err
}

func (c *client) get(ctx context.Context, kind, namespace, name string) (Object, error) {
	r, into := resources[kind], newObject(kind)
	err := c.byVersion[r.version].Get().Namespace(namespace).Resource(r.resource).Name(name).Do(ctx).Into(into)
	return into, err
}

// autoscalers returns all of a namespace, including those of other writers.
func (c *client) autoscalers(ctx context.Context, namespace string) ([]autoscalingv2.HorizontalPodAutoscaler, error) {
	r := resources[kindAutoscaler]
	var list autoscalingv2.HorizontalPodAutoscalerList
	err := c.byVersion[r.version].Get().Namespace(namespace).Resource(r.resource).Do(ctx).Into(&list)
	return list.Items, err
}

// services returns all of a namespace, or of all for "", including those of other writers.
func (c *client) services(ctx context.Context, namespace string) ([]corev1.Service, error) {
	r := resources[kindService]
	var list corev1.ServiceList
	err := c.byVersion[r.version].Get().Namespace(namespace).Resource(r.resource).Do(ctx).Into(&list)
	return list.Items, err
}

// apply applies an object server-side and returns the result.
func (c *client) apply(ctx context.Context, kind, namespace, name string, object map[string]any) (Object, error) {
	r, into := resources[kind], newObject(kind)
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
	}
	force := true
	err = c.byVersion[r.version].Patch(types.ApplyYAMLPatchType).Namespace(namespace).Resource(r.resource).Name(name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).
		Body(body).Do(ctx).Into(into)
	return into, err
}

// fieldManagerReplicas owns the number of replicas from when this controller releases it until the autoscaler first sets it.
const fieldManagerReplicas = "moongate-autoscaling"

// leaveReplicas transfers the number of replicas of a Deployment, unchanged, to another owner: a field without an owner falls back
// to its default, which here would end proxies. If an autoscaler has changed the number in the meantime, there is nothing to do.
func (c *client) leaveReplicas(ctx context.Context, d *appsv1.Deployment) error {
	r := resources[kindDeployment]
	body, err := json.Marshal(map[string]any{
		"apiVersion": r.version.String(), "kind": kindDeployment,
		"metadata": map[string]any{"namespace": d.Namespace, "name": d.Name}, "spec": map[string]any{"replicas": d.Spec.Replicas},
	})
	if err != nil {
		return err
	}
	err = c.byVersion[r.version].Patch(types.ApplyYAMLPatchType).Namespace(d.Namespace).Resource(r.resource).Name(d.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManagerReplicas}, metav1.ParameterCodec).
		Body(body).Do(ctx).Error()
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// scale sets the number of replicas of the given version of a Deployment; it fails if that has changed.
func (c *client) scale(ctx context.Context, d *appsv1.Deployment, replicas int32) (Object, error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.UID, "resourceVersion": d.ResourceVersion}, "spec": map[string]any{"replicas": replicas},
	})
	if err != nil {
		return nil, err
	}
	r, into := resources[kindDeployment], newObject(kindDeployment)
	err = c.byVersion[r.version].Patch(types.MergePatchType).Namespace(d.Namespace).Resource(r.resource).Name(d.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, metav1.ParameterCodec).Body(body).Do(ctx).Into(into)
	return into, err
}

// delete removes the given object, but not another one with the same name.
func (c *client) delete(ctx context.Context, kind string, object Object) error {
	r, uid, policy := resources[kind], object.GetUID(), metav1.DeletePropagationBackground
	return c.byVersion[r.version].Delete().Namespace(object.GetNamespace()).Resource(r.resource).Name(object.GetName()).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy}).Do(ctx).Error()
}
