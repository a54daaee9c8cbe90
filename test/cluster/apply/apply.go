// Package apply applies manifests to an API server as `kubectl apply --server-side`
// does. It exists so that the cluster can be used where kubectl is not installed.
package apply

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

const fieldManager = "test-cluster"

// Client applies objects.
type Client struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// New makes a client.
func New(config *rest.Config) (*Client, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{objects, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery))}, nil
}

// Read reads manifests from files, folders (their *.yaml and *.yml, not deeper) or "-".
func Read(paths []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			yaml, _ := filepath.Glob(filepath.Join(path, "*.yaml")) // the pattern is well formed
			yml, _ := filepath.Glob(filepath.Join(path, "*.yml"))
			files = append(yaml, yml...)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if file == "-" {
				content, err = io.ReadAll(os.Stdin)
			}
			if err != nil {
				return nil, err
			}
			read, err := Parse(content)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, read...)
		}
	}
	return objects, nil
}

// Parse reads the documents of a manifest; a List stands for its items, and
// what has no kind is passed over, such as a folder's kustomization.
func Parse(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := utilyaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		switch {
		case object.GetKind() == "" || object.GroupVersionKind().Group == "kustomize.config.k8s.io":
		case object.IsList():
			err := object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, err
			}
		default:
			objects = append(objects, object)
		}
	}
}

// early kinds are needed by others; what is not listed comes after them.
var early = []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ConfigMap", "Secret"}

// Apply applies objects, what others need first, and waits until new kinds are served.
func (c *Client) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index(early, o.GetKind()); i >= 0 {
			return i
		}
		return len(early)
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	var kinds []*unstructured.Unstructured
	for _, object := range objects {
		if rank(object) > 1 && len(kinds) > 0 {
			if err := c.established(ctx, kinds); err != nil {
				return err
			}
			kinds = nil
		}
		if err := c.one(ctx, object); err != nil {
			return fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		if object.GetKind() == "CustomResourceDefinition" {
			kinds = append(kinds, object)
		}
	}
	return c.established(ctx, kinds)
}

func (c *Client) one(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := c.resource(object)
	if err != nil {
		return err
	}
	for {
		_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		// A namespace's first moments and an overloaded server pass.
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *Client) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func (c *Client) established(ctx context.Context, kinds []*unstructured.Unstructured) error {
	for _, kind := range kinds {
		for {
			object, err := c.dynamic.Resource(definitions).Get(ctx, kind.GetName(), metav1.GetOptions{})
			if err == nil && isEstablished(object) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s to be established: %w", kind.GetName(), errors.Join(context.Cause(ctx), err))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func isEstablished(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
