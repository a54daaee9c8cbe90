package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/internal/kind"
)

// unreadable is an object that an API server has although it does not fit its Go type: the schema of the cluster's CRD may differ.
// It must not keep the others of its kind from being read.
type unreadable struct {
	metav1.PartialObjectMetadata
	err  error
	part *kind.Undecoded // nil for other kinds
}

// object is what decoders return for one object.
type object interface {
	runtime.Object
	metav1.Object
}

// statusless is an object that was decoded without its status, which does not fit: only its spec determines what is served.
type statusless struct {
	object
	field string // the field that was left out
	err   error  // why
}

// mixedList is a list with items that may be unreadable.
type mixedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements runtime.Object; it is never called.
func (u *unreadable) DeepCopyObject() runtime.Object {
	return &unreadable{*u.PartialObjectMetadata.DeepCopy(), u.err, u.part}
}

// DeepCopyObject implements runtime.Object; it is never called.
func (s *statusless) DeepCopyObject() runtime.Object {
	return &statusless{s.object.DeepCopyObject().(object), s.field, s.err}
}

// DeepCopyObject implements runtime.Object; it is never called.
func (l *mixedList) DeepCopyObject() runtime.Object {
	c := &mixedList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]runtime.Object, len(l.Items))}
	for i, item := range l.Items {
		c.Items[i] = item.DeepCopyObject()
	}
	return c
}

// tolerant decodes like Kubernetes' codecs, except objects of optional kinds that do not fit: these become statusless or unreadable.
type tolerant struct{ runtime.NegotiatedSerializer }

var codecs = tolerant{serializer.NewCodecFactory(scheme).WithoutConversion()}

// DecoderToVersion returns the decoder with which clients decode objects, lists and the objects of watch events.
func (t tolerant) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return tolerantDecoder{t.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type tolerantDecoder struct{ runtime.Decoder }

// decode decodes what fits its type.
func (d tolerantDecoder) decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		readFormerSessions(obj, data)
	}
	return obj, gvk, err
}

// Decode decodes one object or list.
func (d tolerantDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.decode(data, defaults, into)
	if err == nil || into != nil || gvk == nil || optionalKind(gvk.GroupKind()) == nil {
		return obj, gvk, err
	}
	var list struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           *[]json.RawMessage `json:"items"`
	}
	if wrong := json.Unmarshal(data, &list); wrong != nil {
		return obj, gvk, err
	}
	if list.Items == nil {
		if item := d.item(data, gvk); item != nil {
			return item, gvk, nil
		}
		return obj, gvk, err
	}
	mixed := &mixedList{ListMeta: list.ListMeta, Items: make([]runtime.Object, 0, len(*list.Items))}
	itemKind := gvk.GroupVersion().WithKind(optionalKind(gvk.GroupKind()).Name)
	for _, raw := range *list.Items {
		if item := d.item(raw, &itemKind); item != nil {
			mixed.Items = append(mixed.Items, item)
		}
	}
	return mixed, gvk, nil
}

// item decodes one object; it returns nil if it has not even a name.
func (d tolerantDecoder) item(data []byte, gvk *schema.GroupVersionKind) runtime.Object {
	obj, _, err := d.decode(data, gvk, nil)
	if err == nil {
		return obj
	}
	if s := d.withoutStatus(data, gvk, err); s != nil {
		return s
	}
	u := &unreadable{err: err}
	var named struct {
		Metadata struct {
			Namespace, Name, ResourceVersion string
		}
	}
	if json.Unmarshal(data, &named) != nil || named.Metadata.Name == "" {
		return nil
	}
	var identified struct {
		Metadata struct{ UID types.UID }
	}
	if json.Unmarshal(data, &identified) == nil {
		u.UID = identified.Metadata.UID
	}
	u.Namespace, u.Name, u.ResourceVersion = named.Metadata.Namespace, named.Metadata.Name, named.Metadata.ResourceVersion
	u.part = optionalKind(gvk.GroupKind()).Leftover(data, metav1.ObjectMeta{Namespace: u.Namespace, Name: u.Name}, err)
	return u
}

// withoutStatus decodes an object for which err was returned without the fields that are not served; it returns nil if other fields
// do not fit.
func (d tolerantDecoder) withoutStatus(data []byte, gvk *schema.GroupVersionKind, err error) runtime.Object {
	var fields, metadata map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["metadata"], &metadata) != nil {
		return nil
	}
	delete(metadata, "managedFields")
	fields["metadata"], _ = json.Marshal(metadata) // decoded JSON can always be encoded
	left := "metadata.managedFields"
	for range 2 {
		rest, _ := json.Marshal(fields)
		if o, _, wrong := d.decode(rest, gvk, nil); wrong == nil {
			if o, ok := o.(object); ok && o.GetName() != "" {
				return &statusless{o, left, err}
			}
			return nil
		}
		delete(fields, "status")
		left = "status"
	}
	return nil
}

// optionalKind returns the kind of an object, or of a list, if it is one that a cluster may not serve.
func optionalKind(gk schema.GroupKind) *watchedKind {
	for _, k := range kinds {
		if k.Optional && k.Group == gk.Group && (gk.Kind == k.Name || gk.Kind == k.Name+"List") {
			return k
		}
	}
	return nil
}
