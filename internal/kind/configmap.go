package kind

import (
	"strconv"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// AuthoritiesKey is the key in a ConfigMap of certificates by which others are verified.
	AuthoritiesKey = "ca.crt"
	// MaxAuthoritiesBytes is the maximum size of its value. Bundles of all public authorities have about 220 KiB.
	MaxAuthoritiesBytes = 512 << 10
	// RevocationsKey is the key of revocation lists of these authorities.
	RevocationsKey = "ca.crl"
	// AuthoritiesTooLarge is, in a kept ConfigMap, the key of the size in bytes of a value that is too large and was dropped. No
	// ConfigMap can have it, because it contains a space. If there are lists without certificates that are kept, RevocationsKey is
	// kept empty.
	AuthoritiesTooLarge = AuthoritiesKey + tooLarge

	// ResponseBodyKey is the key of the body of a response; if it is absent, the first key is used.
	ResponseBodyKey = "response.body"
	// MaxResponseBodyBytes is the maximum size of such a body, as in Envoy.
	MaxResponseBodyBytes = 4096

	tooLarge = " bytes"
)

// keepConfigMap keeps the certificates of a ConfigMap, their revocation lists, and what may be the body of a response: the rest is
// not needed, and may be a megabyte. Every namespace has a ConfigMap with the certificates of the API server (kube-root-ca.crt),
// whose text is kept once.
func keepConfigMap(obj runtime.Object) metav1.Object {
	o := obj.(*corev1.ConfigMap)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	text, has := o.Data[AuthoritiesKey]
	lists, revokes := o.Data[RevocationsKey]
	data := map[string]string{}
	switch {
	case len(text) > MaxAuthoritiesBytes:
		data[AuthoritiesTooLarge], lists = strconv.Itoa(len(text)), ""
	case has:
		data[AuthoritiesKey] = texts.share(text)
	default:
		lists = ""
	}
	if revokes {
		data[RevocationsKey] = lists
	}
	if key := bodyKey(o.Data); key != "" && key != AuthoritiesKey {
		if text := o.Data[key]; len(text) > MaxResponseBodyBytes {
			data[key+tooLarge] = strconv.Itoa(len(text))
		} else {
			data[key] = text
		}
	}
	if len(data) > 0 {
		kept.Data = data
	}
	return kept
}

// bodyKey returns the key of what may be the body of a response, "" if none. Revocation lists are not.
func bodyKey(data map[string]string) string {
	if _, has := data[ResponseBodyKey]; has {
		return ResponseBodyKey
	}
	first := ""
	for key := range data {
		if key != RevocationsKey && (first == "" || key < first) {
			first = key
		}
	}
	return first
}

// ResponseBody returns the body of a response in a ConfigMap, which may be a kept one, and its key, "" if there is none. A body of
// more than MaxResponseBodyBytes may be missing; size is its size.
func ResponseBody(cm *corev1.ConfigMap) (key, text string, size int) {
	if n, large := cm.Data[ResponseBodyKey+tooLarge]; large {
		size, _ = strconv.Atoi(n)
		return ResponseBodyKey, "", size
	}
	key = bodyKey(cm.Data)
	if name, large := strings.CutSuffix(key, tooLarge); large {
		size, _ = strconv.Atoi(cm.Data[key])
		return name, "", size
	}
	text = cm.Data[key]
	return key, text, len(text)
}

// texts are values of ConfigMaps.
var texts recentTexts

// recentTexts returns recent texts again, so that equal ones share memory; older ones are released with their users. It is safe for
// concurrent use.
type recentTexts struct {
	mu   sync.Mutex
	last [8]unique.Handle[string] // the newest first; a handle keeps unique from dropping a text at the next garbage collection
}

// share returns a text equal to the given one: the same as before if it is among the last.
func (r *recentTexts) share(text string) string {
	h := unique.Make(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	moved := h
	for i := range r.last {
		moved, r.last[i] = r.last[i], moved
		if moved == h {
			break
		}
	}
	return h.Value()
}
