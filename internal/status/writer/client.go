package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/kind"
)

// requestTimeout limits one request, so that a lost connection does not block a worker.
const requestTimeout = 30 * time.Second

// client accesses the API server with typed JSON.
type client struct {
	rest    rest.Interface
	version func(group, kind string) string
}

func newClient(config *rest.Config, version func(group, kind string) string) (*client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors are a Status of v1
	c := rest.CopyConfig(config)
	c.ContentConfig = rest.ContentConfig{
		ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
		NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
	}
	c.QPS = -1 // the workers and the API server's priority levels limit it
	c.WarningHandlerWithContext = rest.NoWarnings{}
	r, err := rest.UnversionedRESTClientFor(c)
	return &client{r, version}, err
}

// patch sends a JSON merge patch for an object or one of its subresources, and returns the resulting object.
func (c *client) patch(ctx context.Context, key kind.ObjectKey, like metav1.Object, body []byte, subresource ...string) (metav1.Object, error) {
	r := c.rest.Patch(types.MergePatchType).Param("fieldManager", "moongate").Body(body)
	return c.do(ctx, r, key, like, subresource...)
}

// get reads the present object.
func (c *client) get(ctx context.Context, key kind.ObjectKey, like metav1.Object) (metav1.Object, error) {
	return c.do(ctx, c.rest.Get(), key, like)
}

// do sends a request about an object; the response has the Go type of like.
func (c *client) do(ctx context.Context, r *rest.Request, key kind.ObjectKey, like metav1.Object, subresource ...string) (metav1.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	segments := []string{"/apis", key.Group, c.versionOf(key)}
	if key.Namespace != "" {
		segments = append(segments, "namespaces", key.Namespace)
	}
	segments = append(append(segments, kind.Named(key.Kind).Resource, key.Name), subresource...)
	// The caller retries, because it may have a newer object then.
	result := r.AbsPath(segments...).MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // Raw only returns an error with its code
		return nil, err
	}
	text, err := result.Raw()
	if err != nil {
		return nil, err
	}
	object := reflect.New(reflect.TypeOf(like).Elem()).Interface().(metav1.Object)
	if err := json.Unmarshal(text, object); err != nil {
		return nil, errUndecoded{key.Kind, err}
	}
	object.SetManagedFields(nil)
	return object, nil
}

// errUndecoded is the error if the API server's response does not match the Go type of the kind.
type errUndecoded struct {
	kind string
	err  error
}

func (e errUndecoded) Error() string {
	return fmt.Sprintf("the API server's answer is not %s: %v", e.kind, e.err)
}

func (e errUndecoded) Unwrap() error { return e.err }

func isUndecoded(err error) bool {
	_, is := errors.AsType[errUndecoded](err)
	return is
}

func (c *client) versionOf(key kind.ObjectKey) string {
	if c.version != nil {
		if v := c.version(key.Group, key.Kind); v != "" {
			return v
		}
	}
	return kind.Named(key.Kind).Versions[0]
}
