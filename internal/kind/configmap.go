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
	// AuthoritiesKey is where a ConfigMap has certificates to verify others by.
	AuthoritiesKey = "ca.crt"
	// MaxAuthoritiesBytes bounds what is used of it. Bundles of all public authorities have about 220 KiB.
	MaxAuthoritiesBytes = 512 << 10
	// RevocationsKey is where it has revocation lists of them.
	RevocationsKey = "ca.crl"
	// AuthoritiesTooLarge has, in a kept ConfigMap, the number of bytes in the place of a text that is larger. No ConfigMap has a key with a space.
	// Where there are lists without certificates that are kept, RevocationsKey is kept empty.
	AuthoritiesTooLarge = AuthoritiesKey + tooLarge

	// ResponseBodyKey is where a ConfigMap has the body of a response; without it, that is under the first of its keys.
	ResponseBodyKey = "response.body"
	// MaxResponseBodyBytes bounds such a body, as Envoy does.
	MaxResponseBodyBytes = 4096

	tooLarge = " bytes"
)

// keepConfigMap takes of a ConfigMap the certificates, the revocation lists beside them, and what may be the body of a response: most have no more, or a megabyte of
// something else. Every namespace has the certificates of the API server in a ConfigMap of its own (kube-root-ca.crt), of which one text is kept.
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

// bodyKey is the key of what may be the body of a response, "" for none. Revocation lists are none.
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

// ResponseBody returns the body of a response that a ConfigMap has, which may be a kept one, and its key, "" where there is none. A body of more than
// MaxResponseBodyBytes may not be there; size is its own.
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

// texts are those of ConfigMaps.
var texts recentTexts

// recentTexts finds the texts that came last again, so that they are in memory once; others go with those who have them. It is safe for
// concurrent use.
type recentTexts struct {
	mu   sync.Mutex
	last [8]unique.Handle[string] // the newest first; without its handle unique forgets a text at the next garbage collection
}

// share returns a text equal to the given one, the one that was returned before where it is among the last.
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
