package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/explain"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
)

// asked returns the error of a query to a running gateway, with an exit code.
func asked(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{exitProblems, err}
}

// running returns the present objects of a gateway from its admin server: those of kinds that are Custom, with their statuses and
// problems.
func running(ctx context.Context, address string) (*offline, error) {
	status, err := fetchStatus(ctx, address)
	if err != nil {
		return nil, asked(err)
	}
	off := ofStatus(status)
	r := newReferences(nil, off.objects, off.unusable)
	r.custom, r.shared = true, true
	off.status.Problems = append(off.status.Problems, r.find(off.objects)...)
	return &off.offline, nil
}

// typedStatus is a status with its objects as Go types.
type typedStatus struct {
	offline
	objects  []files.Object
	unusable []files.Problem // about objects that do not exist, or whose form this version does not know
}

// ofStatus converts a status. Of objects that cannot be decoded, as of another version of the API, it knows only the names.
func ofStatus(status *admin.Status) *typedStatus {
	off := &typedStatus{offline: offline{status: *status, controller: cmp.Or(status.ControllerName, controllerName), count: len(status.Items), refused: map[string]bool{}}}
	there := map[string]bool{}
	for _, item := range status.Items {
		object, id := typedItem(item)
		if object != nil {
			off.objects = append(off.objects, files.Object{ID: id, Object: object})
		} else if id.Name != "" {
			off.unusable = append(off.unusable, files.Problem{Object: id, Warning: true}) // the gateway has not rejected it
		}
		if id.Name != "" {
			there[id.String()] = true
		}
	}
	for _, p := range status.Problems {
		if kindName, name, named := strings.Cut(p.Object, " "); named && !p.Ignored && !p.Warning && !there[p.Object] {
			off.refused[p.Object] = true
			if id, ok := keyOf(kindName, name); ok {
				off.unusable = append(off.unusable, files.Problem{Object: id})
			}
		}
	}
	off.suggest = newSuggestions(off.objects, off.unusable)
	for _, o := range status.Others {
		kindName, name, _ := strings.Cut(o.Object, " ")
		if id, ok := keyOf(kindName, name); ok {
			off.suggest.names.add(id)
			off.suggest.ports[id] = o.Ports
		}
	}
	off.status.Others, off.status.ControllerName = nil, ""
	return off
}

// keyOf returns the key of an object of a known kind; name is "namespace/name" or "name".
func keyOf(kindName, name string) (kind.ObjectKey, bool) {
	k := kind.Named(kindName)
	if k == nil {
		return kind.ObjectKey{}, false
	}
	namespace, short, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, short = "", name
	}
	return k.Key(namespace, short), true
}

// typedItem returns an object of a status as its Go type, and its key. It returns nil if the object cannot be decoded, and an empty
// key if its kind is unknown.
func typedItem(item any) (metav1.Object, kind.ObjectKey) {
	raw, err := json.Marshal(item)
	if err != nil {
		return nil, kind.ObjectKey{}
	}
	var head struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, kind.ObjectKey{}
	}
	k := kind.Named(head.Kind)
	if k == nil {
		return nil, kind.ObjectKey{}
	}
	object := k.New()
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, k.Key(head.Metadata.Namespace, head.Metadata.Name)
	}
	return object, kind.KeyOf(object)
}

// explainRunning asks a running gateway, or the controller of a cluster, to answer a question.
func explainRunning(ctx context.Context, address string, args, headers []string, gateway string) (*explain.Explanation, error) {
	q := url.Values{"url": args[len(args)-1:], "header": headers}
	if len(args) > 1 {
		q.Set("method", args[0])
	} else if isRequest(args[0]) {
		q.Set("method", http.MethodGet)
	}
	if gateway != "" {
		q.Set("gateway", gateway)
	}
	answer := admin.Explanation{Steps: &explain.Explanation{}}
	if err := fetchAdmin(ctx, address, "/explain?"+q.Encode(), &answer); err != nil {
		return nil, asked(err)
	}
	steps, ok := answer.Steps.(*explain.Explanation)
	if !ok { // null
		return nil, &exitError{exitProblems, errors.New(address + " does not answer /explain like a Moongate admin server")}
	}
	return steps, nil
}
