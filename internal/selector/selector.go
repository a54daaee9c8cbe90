// Package selector makes a cluster find the endpoints that XBackends of type EndpointSelector select: for each it maintains a
// headless Service with a random name, owned by the XBackend (GEP-4894). Kubernetes creates EndpointSlices for the Service, with its
// labels, by which translation finds them.
//
// To which XBackend a Service belongs is determined by the state of the cluster alone: a new leader continues with what exists.
// Kubernetes itself removes the Service with its XBackend, so an XBackend that cannot be read, or is not named for a moment, does
// not stop what serves.
//
// It must not import the data plane, nor anything that reads the cluster in another way.
package selector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/resume"
	"github.com/moongate-dev/moongate/internal/translate"
)

// Options configure a Keeper. All fields except Namespaces and Logger are required.
type Options struct {
	Client kubernetes.Interface
	// ControllerName is that of managed GatewayClasses: Services of another installation are left alone.
	ControllerName string
	// Namespaces are those that may contain XBackends; empty means all.
	Namespaces []string
	Logger     *slog.Logger // nil discards
}

// annotationController names the installation that has made a Service.
const annotationController = "moongate.dev/controller"

// kindXBackend is the kind of their owners.
const kindXBackend = "XBackend"

// maxNamePrefix leaves room for what the API server appends to metadata.generateName.
const maxNamePrefix = 50

type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// Keeper maintains the Services. It is safe for concurrent use.
type Keeper struct {
	o Options

	mu     sync.Mutex
	wanted map[key]*translate.EndpointSelector
	// work is the queue of Run; nil unless this controller is leader.
	work workqueue.TypedRateLimitingInterface[key]
	// services are those of this installation as last seen, by XBackend and then by name, and owners the XBackends by Service.
	// listed are the namespaces that were listed, "" for all.
	services map[key]map[string]*corev1.Service
	owners   map[key]key
	listed   map[string]bool
	failures map[key]string // why the last attempt failed, as logged
	errors   uint64         // failed attempts since New
}

const (
	// workers is how many XBackends are handled concurrently.
	workers = 4
	// What failed, or was changed by another writer, is tried again after minDelay, twice that, and so on up to maxDelay.
	minDelay = 200 * time.Millisecond
	maxDelay = 5 * time.Minute
	// settled is how long after a write the Service is checked: if it is unchanged, the next delay is minDelay again.
	settled = time.Minute
)

// New returns a Keeper without XBackends.
func New(o Options) *Keeper {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, wanted: map[key]*translate.EndpointSelector{}}
	k.forget()
	return k
}

func (k *Keeper) forget() {
	k.work, k.services, k.owners, k.listed, k.failures = nil, map[key]map[string]*corev1.Service{}, map[key]key{}, map[string]bool{}, map[key]string{}
}

// Update sets changed selectors of XBackends, whether this replica is leader or not. It never blocks.
func (k *Keeper) Update(changes []translate.SelectorChange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ch := range changes {
		x := key{ch.Namespace, ch.Name}
		if ch.Selector == nil {
			delete(k.wanted, x)
			delete(k.failures, x)
			continue
		}
		k.wanted[x] = ch.Selector
		if k.work != nil {
			k.work.Forget(x)
			k.work.Add(x)
		}
	}
}

// Run maintains the Services until ctx ends. Only the leader calls it.
func (k *Keeper) Run(ctx context.Context) error {
	work := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](minDelay, maxDelay))
	k.mu.Lock()
	k.work = work
	for x := range k.wanted {
		work.Add(x)
	}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forget()
	}()
	var wg sync.WaitGroup
	for _, namespace := range k.namespaces() {
		reflector := cache.NewReflectorWithOptions(k.listWatch(namespace), &corev1.Service{}, &store{k, namespace}, cache.ReflectorOptions{Name: "Services of XBackends"})
		wg.Go(func() { wait.UntilWithContext(ctx, reflector.RunWithContext, time.Second) })
	}
	for range workers {
		wg.Go(func() { k.workOn(ctx, work) })
	}
	<-ctx.Done()
	work.ShutDown()
	wg.Wait()
	return nil
}

func (k *Keeper) namespaces() []string {
	if len(k.o.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return slices.Compact(slices.Sorted(slices.Values(k.o.Namespaces)))
}

func (k *Keeper) listWatch(namespace string) cache.ListerWatcher {
	services := k.o.Client.CoreV1().Services(namespace)
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return services.List(ctx, o) }
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = v1alpha1.LabelXBackend
			resume.Newest(&o)
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := resume.Check(ctx, o, list); err != nil {
				return nil, err
			}
			o.LabelSelector = v1alpha1.LabelXBackend
			return services.Watch(ctx, o)
		},
	}, k.o.Client)
}

// owner returns the XBackend to which a Service belongs, if it was made by this installation.
func (k *Keeper) owner(s *corev1.Service) (x key, uid types.UID, own bool) {
	of := metav1.GetControllerOf(s)
	if of == nil || of.Kind != kindXBackend || of.APIVersion != gwx.GroupVersion.String() || s.Annotations[annotationController] != k.o.ControllerName {
		return key{}, "", false
	}
	return key{s.Namespace, of.Name}, of.UID, true
}

// note records a Service as the watch reports it; gone means that it no longer exists.
func (k *Keeper) note(s *corev1.Service, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.work == nil {
		return
	}
	x, fresh, changed := k.record(s, gone)
	if fresh {
		k.work.Add(x)
	}
	if changed != nil { // by another writer, possibly again and again
		k.work.AddRateLimited(*changed)
	}
}

// wrote records a Service that the Keeper itself has written, before the watch reports it.
func (k *Keeper) wrote(s *corev1.Service, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.work == nil {
		return
	}
	x, fresh, changed := k.record(s, gone)
	if changed != nil {
		x = *changed
	}
	if fresh || changed != nil {
		k.work.AddAfter(x, settled)
	}
}

// record records the present state of a Service. fresh is set if it was not known before as one of x; changed is the XBackend for
// which it was known in another state, or nil. The caller must hold k.mu.
func (k *Keeper) record(s *corev1.Service, gone bool) (x key, fresh bool, changed *key) {
	x, _, own := k.owner(s)
	at := key{s.Namespace, s.Name}
	if of, known := k.owners[at]; known {
		before := k.services[of][s.Name]
		switch {
		case gone && before.UID != s.UID: // another Service has its name
			return x, false, nil
		case !gone && own && of == x && alike(before, s):
			k.services[x][s.Name] = s
			return x, false, nil
		}
		changed = &of
		delete(k.owners, at)
		if delete(k.services[of], s.Name); len(k.services[of]) == 0 {
			delete(k.services, of)
		}
	}
	if gone || !own {
		return x, false, changed
	}
	if k.services[x] == nil {
		k.services[x] = map[string]*corev1.Service{}
	}
	k.services[x][s.Name], k.owners[at] = s, x
	return x, changed == nil || *changed != x, changed
}

// alike reports whether two states of a Service differ in nothing that the Keeper depends on.
func alike(a, b *corev1.Service) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && slices.EqualFunc(a.OwnerReferences, b.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Spec.Selector, b.Spec.Selector) && a.Spec.ClusterIP == b.Spec.ClusterIP &&
		samePorts(a.Spec.Ports, b.Spec.Ports) && a.Spec.PublishNotReadyAddresses == b.Spec.PublishNotReadyAddresses
}

// list records all Services of a namespace, or of all for "". No Service is created before that.
func (k *Keeper) list(namespace string, all []any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.work == nil {
		return
	}
	for at, x := range k.owners {
		if namespace == metav1.NamespaceAll || namespace == at.namespace {
			delete(k.owners, at)
			delete(k.services, x)
		}
	}
	for _, o := range all {
		k.record(o.(*corev1.Service), false)
	}
	k.listed[namespace] = true
	for x := range k.wanted {
		k.work.Add(x)
	}
}

func (k *Keeper) workOn(ctx context.Context, work workqueue.TypedRateLimitingInterface[key]) {
	for {
		x, shutdown := work.Get()
		if shutdown {
			return
		}
		if err := k.reconcile(ctx, x); err != nil && ctx.Err() == nil {
			k.noteFailure(x, err)
			work.AddRateLimited(x)
		} else if err == nil {
			k.noteFailure(x, nil)
		}
		work.Done(x)
	}
}

// writeError is the error of a write.
type writeError struct {
	what string // such as "creating a Service"
	err  error
}

func (e *writeError) Error() string { return e.what + ": " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// errAltered means that the stored Service differs from what was written.
var errAltered = errors.New("the Service is not as it was written; an admission webhook of the cluster changes it")

// noteFailure logs why an XBackend has no Service, once until the reason changes. Names that the API server generates are not
// compared.
func (k *Keeper) noteFailure(x key, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(k.failures, x)
		return
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // it ends with its namespace
		return
	}
	k.errors++
	why := string(apierrors.ReasonForError(err))
	if write := (*writeError)(nil); errors.As(err, &write) {
		why += " " + write.what
	}
	if k.failures[x] != why {
		k.failures[x] = why
		k.o.Logger.Warn("the Service for the endpoints of an XBackend cannot be maintained; trying again", "xbackend", x.String(), "error", err)
	}
}

// Failures returns how many attempts to maintain the Service of an XBackend have failed since New, and how many XBackends lack one
// because of that.
func (k *Keeper) Failures() (errors uint64, failing int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.errors, len(k.failures)
}

// reconcile makes an XBackend have exactly one correct Service, or none.
func (k *Keeper) reconcile(ctx context.Context, x key) error {
	k.mu.Lock()
	s := k.wanted[x]
	present := slices.Collect(maps.Values(k.services[x]))
	known := k.listed[metav1.NamespaceAll] || k.listed[x.namespace]
	k.mu.Unlock()
	if s == nil {
		k.settle(x) // else the queue would remember each XBackend that is gone, because its Service is deleted after it
		return nil
	}
	if !known {
		return nil
	}
	present = slices.DeleteFunc(present, func(svc *corev1.Service) bool {
		_, of, _ := k.owner(svc)
		return of != s.UID || svc.DeletionTimestamp != nil // of an earlier XBackend with the name, which is deleted with it
	})
	slices.SortFunc(present, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	keep := 1
	if len(s.Labels) == 0 {
		keep = 0
	}
	for _, svc := range present[min(len(present), keep):] { // two replicas may have created one each
		if err := k.remove(ctx, svc); err != nil {
			return err
		}
	}
	if keep == 1 && len(present) > 0 && present[0].Spec.ClusterIP != corev1.ClusterIPNone { // the field is immutable
		if err := k.remove(ctx, present[0]); err != nil {
			return err
		}
		present = nil
	}
	switch {
	case keep == 0:
		return nil
	case len(present) == 0:
		return k.create(ctx, x, s)
	case k.right(x, s, present[0]):
		k.settle(x)
		return nil
	}
	return k.correct(ctx, x, s, present[0])
}

// settle records that nothing had to be done for an XBackend.
func (k *Keeper) settle(x key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.work != nil {
		k.work.Forget(x)
	}
}

// create creates the Service of an XBackend.
func (k *Keeper) create(ctx context.Context, x key, s *translate.EndpointSelector) error {
	const what = "creating a Service"
	made, err := k.o.Client.CoreV1().Services(x.namespace).Create(ctx, k.service(x, s), metav1.CreateOptions{})
	if err != nil {
		return &writeError{what, err}
	}
	if k.wrote(made, false); !k.right(x, s, made) {
		return &writeError{what, errAltered}
	}
	return nil
}

// right reports whether a Service is as an XBackend needs it.
func (k *Keeper) right(x key, s *translate.EndpointSelector, svc *corev1.Service) bool {
	for name, value := range k.labels(x, s) {
		if svc.Labels[name] != value {
			return false
		}
	}
	return svc.Spec.ClusterIP == corev1.ClusterIPNone && maps.Equal(svc.Spec.Selector, s.Labels) && samePorts(svc.Spec.Ports, ports(s)) && !svc.Spec.PublishNotReadyAddresses
}

// labels returns the labels of a Service for its EndpointSlices.
func (k *Keeper) labels(x key, s *translate.EndpointSelector) map[string]string {
	return map[string]string{v1alpha1.LabelXBackend: v1alpha1.XBackendLabel(x.name), v1alpha1.LabelXBackendUID: string(s.UID)}
}

// service returns the Service of an XBackend. Only its endpoints are used.
func (k *Keeper) service(x key, s *translate.EndpointSelector) *corev1.Service {
	prefix := x.name
	if first := prefix[0]; first < 'a' || first > 'z' { // the name of a Service begins with a letter
		prefix = "x" + prefix
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.namespace, GenerateName: noDots(prefix[:min(len(prefix), maxNamePrefix)]) + "-",
			Labels:          k.labels(x, s),
			Annotations:     map[string]string{annotationController: k.o.ControllerName},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: gwx.GroupVersion.String(), Kind: kindXBackend, Name: x.name, UID: s.UID, Controller: new(true)}},
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: s.Labels, Ports: ports(s), IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)},
	}
}

func ports(s *translate.EndpointSelector) []corev1.ServicePort {
	return []corev1.ServicePort{{Port: s.Port, TargetPort: intstr.FromInt32(s.Port), Protocol: corev1.ProtocolTCP}}
}

// noDots converts the name of an XBackend, a DNS subdomain, to a part of the name of a Service, a DNS label.
func noDots(name string) string {
	b := []byte(name)
	for i := range b {
		if b[i] == '.' {
			b[i] = '-'
		}
	}
	return string(b)
}

// correct updates a Service.
func (k *Keeper) correct(ctx context.Context, x key, s *translate.EndpointSelector, svc *corev1.Service) error {
	patch := []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": svc.UID},
		{"op": "add", "path": "/spec/selector", "value": s.Labels},
		{"op": "add", "path": "/spec/ports", "value": ports(s)},
		{"op": "add", "path": "/spec/publishNotReadyAddresses", "value": false},
	}
	for name, value := range k.labels(x, s) { // in addition to others that it may have
		patch = append(patch, map[string]any{"op": "add", "path": "/metadata/labels/" + strings.ReplaceAll(name, "/", "~1"), "value": value})
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	after, err := k.o.Client.CoreV1().Services(x.namespace).Patch(ctx, svc.Name, types.JSONPatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		k.note(svc, true)
		return nil
	}
	const what = "correcting a Service"
	if err != nil {
		return &writeError{what, err}
	}
	if k.wrote(after, false); !k.right(x, s, after) {
		return &writeError{what, errAltered}
	}
	return nil
}

func samePorts(a, b []corev1.ServicePort) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.ServicePort) bool {
		return a.Port == b.Port && a.TargetPort == b.TargetPort && cmp.Or(a.Protocol, corev1.ProtocolTCP) == b.Protocol
	})
}

// remove deletes the given Service, but not another one with the same name.
func (k *Keeper) remove(ctx context.Context, svc *corev1.Service) error {
	err := k.o.Client.CoreV1().Services(svc.Namespace).Delete(ctx, svc.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &svc.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return &writeError{"removing a Service", err}
	}
	k.wrote(svc, true)
	return nil
}

// store receives what a reflector reads.
type store struct {
	k         *Keeper
	namespace string
}

func (s *store) Add(o any) error    { s.k.note(o.(*corev1.Service), false); return nil }
func (s *store) Update(o any) error { return s.Add(o) }
func (s *store) Delete(o any) error { s.k.note(o.(*corev1.Service), true); return nil }
func (s *store) Resync() error      { return nil }

func (s *store) Replace(all []any, _ string) error { s.k.list(s.namespace, all); return nil }
