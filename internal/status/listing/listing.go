// Package listing reads the Gateway API objects of a cluster for people to look at.
// It exists beside source/kube because that follows a cluster for good, with the
// rights of a controller, while a person asks once and may not see everything.
//
// It imports neither translate, proxy nor source.
package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/kind"
)

// pageSize is how many objects one answer has at most.
const pageSize = 500

// Problem is a kind that could not be listed.
type Problem struct {
	Kind    string
	Message string
	Remedy  string
}

// ErrNotInstalled says that a cluster has none of the kinds.
var ErrNotInstalled = errors.New("the cluster has no Gateway API; install its CRDs as https://gateway-api.sigs.k8s.io/guides/ tells")

// List reads the objects of one namespace, "" for all, and those that are in none;
// sorted by kind, namespace and name, and without managedFields. Kinds that are
// not installed are left out; those that could not be read are among the problems.
// It fails if there is nothing to read.
func List(ctx context.Context, config *rest.Config, namespace string) (items []map[string]any, problems []Problem, err error) {
	client, err := newClient(config)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := client.installed(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(kinds) == 0 {
		return nil, nil, ErrNotInstalled
	}
	found, failed := make([][]map[string]any, len(kinds)), make([]error, len(kinds))
	var wait sync.WaitGroup
	for i, k := range kinds {
		wait.Go(func() { found[i], failed[i] = client.list(ctx, k, namespace) })
	}
	wait.Wait()
	for i, k := range kinds {
		if failed[i] != nil && !apierrors.IsNotFound(failed[i]) { // else it went this moment
			problems = append(problems, Problem{k.kind, failed[i].Error(), remedy(failed[i], k, namespace)})
		}
		items = append(items, found[i]...)
	}
	slices.SortStableFunc(items, func(a, b map[string]any) int { return keyOf(a).Compare(keyOf(b)) })
	return items, problems, nil
}

func remedy(err error, k listed, namespace string) string {
	switch {
	case apierrors.IsForbidden(err) && namespace == "" && k.namespaced:
		return fmt.Sprintf("name a namespace that you may read, or ask for the verb list on %s.%s", k.resource, k.group)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("ask for the verb list on %s.%s", k.resource, k.group)
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

type client struct{ rest rest.Interface }

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors come as a Status of v1
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
	r := c.rest.Get().AbsPath(append([]string{"/apis"}, segments...)...)
	for name, value := range parameters {
		r = r.Param(name, value)
	}
	result := r.Do(ctx)
	if err := result.Error(); err != nil { // which Raw knows by its code alone
		return err
	}
	text, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// installed are the kinds that are served, each in the version that its group prefers.
func (c *client) installed(ctx context.Context) ([]listed, error) {
	var kinds []listed
	for _, group := range kind.Groups() {
		var versions metav1.APIGroup
		if err := c.get(ctx, &versions, nil, group); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, v := range versions.Versions { // the preferred ones come first
			var resources metav1.APIResourceList
			if err := c.get(ctx, &resources, nil, group, v.Version); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, err
			}
			for _, r := range resources.APIResources {
				if k := kind.Find(group, r.Kind); k != nil && k.HasStatus() && !seen[r.Kind] && slices.Contains(r.Verbs, "list") {
					seen[r.Kind] = true
					kinds = append(kinds, listed{group, v.Version, r.Kind, r.Name, r.Namespaced})
				}
			}
		}
	}
	return kinds, nil
}

// list reads all objects of a kind, page by page.
func (c *client) list(ctx context.Context, k listed, namespace string) ([]map[string]any, error) {
	segments := []string{k.group, k.version}
	if k.namespaced && namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	segments = append(segments, k.resource)
	var all []map[string]any
	parameters := map[string]string{"limit": fmt.Sprint(pageSize)}
	for {
		var page struct {
			Metadata metav1.ListMeta  `json:"metadata"`
			Items    []map[string]any `json:"items"`
		}
		err := c.get(ctx, &page, parameters, segments...)
		if apierrors.IsResourceExpired(err) && parameters["continue"] != "" {
			all, parameters = nil, nil // too slow for pages: everything at once
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			item["apiVersion"], item["kind"] = k.group+"/"+k.version, k.kind
			strip(item)
			all = append(all, item)
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		parameters["continue"] = page.Metadata.Continue
	}
}

// strip drops what is for machines.
func strip(item map[string]any) {
	meta, _ := item["metadata"].(map[string]any)
	delete(meta, "managedFields")
	annotations, _ := meta["annotations"].(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if annotations != nil && len(annotations) == 0 {
		delete(meta, "annotations")
	}
}
