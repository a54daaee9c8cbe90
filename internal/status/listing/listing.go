// Package listing reads the objects of a cluster once, to show them. It is separate from source/kube because that watches a cluster
// continuously, with the permissions of a controller, while a user asks once and may not be permitted to read everything.
//
// It imports neither translate, proxy nor source.
package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/kind"
)

// pageSize is the maximum number of objects in one response.
const pageSize = 500

// Problem is a kind that could not be listed.
type Problem struct {
	Kind    string
	Message string
	Remedy  string

	forbidden, namespaced bool
}

// ErrNotInstalled is returned if a cluster has none of the kinds.
var ErrNotInstalled = errors.New("the Gateway API is not installed in the cluster; install its CRDs, see https://gateway-api.sigs.k8s.io/guides/")

// List reads the objects of one namespace ("" for all) and cluster-scoped objects, sorted by kind, namespace and name, and without
// managedFields. Kinds that are not installed are left out; those that could not be read are among the problems. It fails if nothing
// can be read.
func List(ctx context.Context, config *rest.Config, namespace string) (items []map[string]any, problems []Problem, err error) {
	items, problems, err = read(ctx, config, namespace, func(k *kind.Kind, _ string) bool { return k.HasStatus() })
	if namespace == "" {
		for i, p := range problems {
			if p.forbidden && p.namespaced {
				problems[i].Remedy = "name a namespace that you may read, or " + p.Remedy
			}
		}
	}
	return items, problems, err
}

// All reads the objects of every kind that Moongate reads, like List. Secrets are complete. An object that the cluster has only in a
// past version, see kind.Kind, gets the current version: they differ in nothing else.
func All(ctx context.Context, config *rest.Config) (items []map[string]any, problems []Problem, err error) {
	items, problems, err = read(ctx, config, "", func(k *kind.Kind, version string) bool {
		return k.Cluster != kind.Unread && (version == "" || slices.Contains(k.ReadVersions(), version))
	})
	for _, item := range items {
		written, _ := item["apiVersion"].(string)
		k := kind.Named(keyOf(item).Kind)
		if group, version, _ := strings.Cut(written, "/"); slices.Contains(k.Past, version) {
			item["apiVersion"] = group + "/" + k.Versions[0]
		}
	}
	return items, problems, err
}

// selectors are the field selectors with which a resource is read: a cluster has many Secrets, some of them large, that no listener
// can use.
var selectors = map[string]string{"secrets": "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"}

// read reads the objects of wanted kinds, in a wanted version; "" means any.
func read(ctx context.Context, config *rest.Config, namespace string, wanted func(k *kind.Kind, version string) bool) (items []map[string]any, problems []Problem, err error) {
	client, err := newClient(config)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := client.installed(ctx, wanted)
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(kinds, func(l listed) bool { return kind.Find(l.group, l.kind).Custom }) {
		return nil, nil, ErrNotInstalled
	}
	items, problems, _ = client.listAll(ctx, kinds, namespace)
	return items, problems, nil
}

// LastRenewed returns which Lease with a name and an annotation, in any namespace, was renewed last, and when. Without such a Lease,
// it chooses among those that lack the annotation. The time is zero if there is none, or if Leases may not be read.
func LastRenewed(ctx context.Context, config *rest.Config, name, annotation, value string) (lease kind.ObjectKey, at time.Time) {
	client, err := newClient(config)
	if err != nil {
		return lease, at
	}
	leases, err := client.listSome(ctx, listed{"coordination.k8s.io", "v1", "Lease", "leases", true}, "", map[string]string{"fieldSelector": "metadata.name=" + name})
	if err != nil {
		return lease, at // without permission for it, the caller's other results are still useful
	}
	for _, wanted := range []string{value, ""} {
		for _, l := range leases {
			meta, _ := l["metadata"].(map[string]any)
			annotations, _ := meta["annotations"].(map[string]any)
			if has, _ := annotations[annotation].(string); has != wanted {
				continue
			}
			spec, _ := l["spec"].(map[string]any)
			text, _ := spec["renewTime"].(string)
			if renewed, err := time.Parse(time.RFC3339Nano, text); err == nil && renewed.After(at) {
				lease, at = keyOf(l), renewed
			}
		}
		if !at.IsZero() {
			break
		}
	}
	return lease, at
}

// ingressKinds are the kinds that Ingresses refer to, and policies that may apply to them.
var ingressKinds = []listed{
	{"networking.k8s.io", "v1", "Ingress", "ingresses", true},
	{"", "v1", "Service", "services", true},
	{"networking.k8s.io", "v1", "IngressClass", "ingressclasses", false},
	{"apps", "v1", "Deployment", "deployments", true},
	{"apps", "v1", "DaemonSet", "daemonsets", true},
	{"gateway.envoyproxy.io", "v1alpha1", "ClientTrafficPolicy", "clienttrafficpolicies", true},
	{"gateway.envoyproxy.io", "v1alpha1", "SecurityPolicy", "securitypolicies", true},
	{"gateway.envoyproxy.io", "v1alpha1", "BackendTrafficPolicy", "backendtrafficpolicies", true},
}

// Ingresses reads the Ingresses of all namespaces, and the Services, IngressClasses, Deployments, DaemonSets and policies of Envoy
// Gateway that are needed to interpret them. Kinds that are not installed are left out, and so are forbidden ones, which are among
// the problems; it fails if Ingresses cannot be read.
func Ingresses(ctx context.Context, config *rest.Config) (items []map[string]any, problems []Problem, err error) {
	client, err := newClient(config)
	if err != nil {
		return nil, nil, err
	}
	items, problems, failed := client.listAll(ctx, ingressKinds, "")
	return items, problems, failed[0]
}

// ConfigMaps reads the ConfigMaps named as namespace/name, those of any namespace with a name in names, and those with a label
// unless it is "". It requests no others. Absent ones are left out; forbidden ones are among the problems.
func ConfigMaps(ctx context.Context, config *rest.Config, named, names []string, label string) (items []map[string]any, problems []Problem, err error) {
	client, err := newClient(config)
	if err != nil {
		return nil, nil, err
	}
	k := listed{"", "v1", "ConfigMap", "configmaps", true}
	keep := func(found []map[string]any, err error) {
		switch {
		case err == nil || apierrors.IsNotFound(err):
		case len(problems) == 0:
			problems = append(problems, Problem{Kind: k.kind, Message: err.Error(), Remedy: remedy(err, k), forbidden: apierrors.IsForbidden(err), namespaced: true})
		}
		for _, item := range found {
			if !slices.ContainsFunc(items, func(o map[string]any) bool { return keyOf(o) == keyOf(item) }) {
				items = append(items, item)
			}
		}
	}
	for _, name := range named {
		namespace, name, _ := strings.Cut(name, "/")
		keep(client.listSome(ctx, k, namespace, map[string]string{"fieldSelector": "metadata.name=" + name}))
	}
	for _, name := range names {
		keep(client.listSome(ctx, k, "", map[string]string{"fieldSelector": "metadata.name=" + name}))
	}
	if label != "" {
		keep(client.listSome(ctx, k, "", map[string]string{"labelSelector": label}))
	}
	slices.SortStableFunc(items, func(a, b map[string]any) int { return keyOf(a).Compare(keyOf(b)) })
	return items, problems, nil
}

// listAll lists kinds concurrently. It also returns the error of each.
func (c *client) listAll(ctx context.Context, kinds []listed, namespace string) (items []map[string]any, problems []Problem, failed []error) {
	found := make([][]map[string]any, len(kinds))
	failed = make([]error, len(kinds))
	var wait sync.WaitGroup
	for i, k := range kinds {
		wait.Go(func() { found[i], failed[i] = c.list(ctx, k, namespace) })
	}
	wait.Wait()
	for i, k := range kinds {
		if failed[i] != nil && !apierrors.IsNotFound(failed[i]) { // else the kind was just removed
			problems = append(problems, Problem{Kind: k.kind, Message: failed[i].Error(), Remedy: remedy(failed[i], k), forbidden: apierrors.IsForbidden(failed[i]), namespaced: k.namespaced})
		}
		items = append(items, found[i]...)
	}
	slices.SortStableFunc(items, func(a, b map[string]any) int { return keyOf(a).Compare(keyOf(b)) })
	return items, problems, failed
}

func remedy(err error, k listed) string {
	if apierrors.IsForbidden(err) {
		return "ask for the verb list on " + k.named()
	}
	return "try again"
}

func keyOf(item map[string]any) kind.ObjectKey {
	meta, _ := item["metadata"].(map[string]any)
	text := func(v any) string { s, _ := v.(string); return s }
	return kind.ObjectKey{Kind: text(item["kind"]), Namespace: text(meta["namespace"]), Name: text(meta["name"])}
}

// listed is a kind in the version that is read.
type listed struct {
	group, version, kind, resource string
	namespaced                     bool
}

// named returns the resource as roles name it.
func (k *listed) named() string { return strings.TrimSuffix(k.resource+"."+k.group, ".") }

type client struct{ rest rest.Interface }

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors are a Status of v1
	c := rest.CopyConfig(config)
	c.ContentConfig = rest.ContentConfig{
		ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
	}
	c.QPS = -1
	c.WarningHandlerWithContext = rest.NoWarnings{}
	r, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &client{r}, nil
}

func (c *client) get(ctx context.Context, into any, parameters map[string]string, segments ...string) error {
	r := c.rest.Get().AbsPath(segments...)
	for name, value := range parameters {
		r = r.Param(name, value)
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil { // Raw only returns an error with its code
		return err
	}
	text, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// pathOf returns the URL path at which an API server serves a version of a group.
func pathOf(group, version string) []string {
	if group == "" {
		return []string{"/api", version}
	}
	return []string{"/apis", group, version}
}

// installed returns the wanted kinds that are served, each in the preferred version of its group.
func (c *client) installed(ctx context.Context, wanted func(k *kind.Kind, version string) bool) ([]listed, error) {
	var kinds []listed
	var groups []string
	for _, k := range kind.All() {
		if wanted(k, "") && !slices.Contains(groups, k.Group) {
			groups = append(groups, k.Group)
		}
	}
	for _, group := range groups {
		var names []string // of versions
		if group == "" {
			names = []string{"v1"}
		} else {
			var versions metav1.APIGroup
			if err := c.get(ctx, &versions, nil, "/apis", group); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, err
			}
			for _, v := range versions.Versions { // in order of preference
				names = append(names, v.Version)
			}
		}
		seen := map[string]bool{}
		for _, version := range names {
			var resources metav1.APIResourceList
			if err := c.get(ctx, &resources, nil, pathOf(group, version)...); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, err
			}
			for _, r := range resources.APIResources {
				if k := kind.Find(group, r.Kind); k != nil && wanted(k, version) && r.Name == k.Resource && !seen[r.Kind] && slices.Contains(r.Verbs, "list") {
					seen[r.Kind] = true
					kinds = append(kinds, listed{group, version, r.Kind, r.Name, r.Namespaced})
				}
			}
		}
	}
	return kinds, nil
}

// list reads all objects of a kind, page by page.
func (c *client) list(ctx context.Context, k listed, namespace string) ([]map[string]any, error) {
	parameters := map[string]string{}
	if selector := selectors[k.named()]; selector != "" {
		parameters["fieldSelector"] = selector
	}
	return c.listSome(ctx, k, namespace, parameters)
}

// listSome reads the objects of a kind that parameters select, page by page.
func (c *client) listSome(ctx context.Context, k listed, namespace string, parameters map[string]string) ([]map[string]any, error) {
	segments := pathOf(k.group, k.version)
	if k.namespaced && namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	segments = append(segments, k.resource)
	var all []map[string]any
	parameters["limit"] = fmt.Sprint(pageSize)
	for {
		var page struct {
			Metadata metav1.ListMeta  `json:"metadata"`
			Items    []map[string]any `json:"items"`
		}
		err := c.get(ctx, &page, parameters, segments...)
		if apierrors.IsResourceExpired(err) && parameters["continue"] != "" {
			all = nil // the pages have expired: everything is read at once
			delete(parameters, "limit")
			delete(parameters, "continue")
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			item["apiVersion"], item["kind"] = strings.TrimPrefix(k.group+"/"+k.version, "/"), k.kind
			strip(item)
			all = append(all, item)
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		parameters["continue"] = page.Metadata.Continue
	}
}

// strip removes fields that are not useful to a reader.
func strip(item map[string]any) {
	meta, _ := item["metadata"].(map[string]any)
	delete(meta, "managedFields")
	annotations, _ := meta["annotations"].(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if annotations != nil && len(annotations) == 0 {
		delete(meta, "annotations")
	}
}
