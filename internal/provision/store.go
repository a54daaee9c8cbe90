package provision

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gatewayName is the full name of a Gateway.
type gatewayName struct{ namespace, name string }

func (g gatewayName) String() string { return g.namespace + "/" + g.name }

// objectName is an object within the namespace of its Gateway.
type objectName struct{ kind, name string }

func (n objectName) String() string { return n.kind + " " + n.name }

// store holds what runs, by Gateway. It is safe for concurrent use; the objects in it are
// never changed. It keeps the newest version that it has seen of each object, so that what
// a write answered is not undone by an event from before it.
type store struct {
	controller string // objects of others are not held
	// changed is called with a Gateway whose objects changed, with the kind. It must not block.
	changed func(gatewayName, string)
	// synced is called when a kind was listed, each time.
	synced func(scope)
	// split says that each namespace has a watch of its own; otherwise one has all.
	split bool

	mu       sync.Mutex
	gateways map[gatewayName]map[objectName]Object
	owners   map[string]map[objectName]gatewayName // by namespace: whose an object is
	progress map[objectName]progress               // of DaemonSets, whose names have their namespaces, while they replace their pods
	latest   map[scope]string                      // the version up to which the watch has reported everything
	former   map[accountName][]formerAccount       // the last few of each name, the newest last
	purged   time.Time                             // when former was last
}

// accountName is a ServiceAccount of a Gateway.
type accountName struct {
	gateway gatewayName
	name    string
}

// formerAccount is a ServiceAccount that is gone, of which pods may have tokens.
type formerAccount struct {
	uid, owner types.UID // owner is its controller
	gone       time.Time
}

const (
	// formerAccounts is how many are kept of one name.
	formerAccounts = 4
	// tokenLife is how long a pod may have a token of a ServiceAccount that is gone. The kubelet renews it before that.
	tokenLife  = tokenSeconds * time.Second
	purgeEvery = time.Minute
)

// noteGone keeps a ServiceAccount that is gone or has another in its place. s.mu is held.
func (s *store) noteGone(g gatewayName, n objectName) {
	account := s.gateways[g][n]
	if n.kind != kindServiceAccount || account == nil {
		return
	}
	owner := metav1.GetControllerOf(account)
	if owner == nil {
		return
	}
	now := time.Now()
	if now.Sub(s.purged) >= purgeEvery {
		s.purged = now
		maps.DeleteFunc(s.former, func(_ accountName, all []formerAccount) bool { return now.Sub(all[len(all)-1].gone) >= tokenLife })
	}
	name := accountName{g, n.name}
	all := append(s.former[name], formerAccount{account.GetUID(), owner.UID, now})
	s.former[name] = all[max(0, len(all)-formerAccounts):]
}

// succeeds reports whether a ServiceAccount is in the place of one with that UID, which had the same owner, and of which there may be tokens.
func (s *store) succeeds(account Object, uid string) bool {
	owner := metav1.GetControllerOf(account)
	if owner == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := accountName{gatewayName{account.GetNamespace(), account.GetAnnotations()[annotationGateway]}, account.GetName()}
	return slices.ContainsFunc(s.former[name], func(f formerAccount) bool {
		return string(f.uid) == uid && f.owner == owner.UID && time.Since(f.gone) < tokenLife
	})
}

// scope is what one watch is about: a kind in a namespace, or in all for "".
type scope struct{ kind, namespace string }

// watchOf is the watch that reports an object.
func (s *store) watchOf(kind string, object Object) scope {
	if s.split {
		return scope{kind, object.GetNamespace()}
	}
	return scope{kind, metav1.NamespaceAll}
}

func newStore(controller string) *store {
	return &store{
		controller: controller, gateways: map[gatewayName]map[objectName]Object{},
		owners: map[string]map[objectName]gatewayName{}, progress: map[objectName]progress{}, latest: map[scope]string{},
		former: map[accountName][]formerAccount{},
	}
}

// of is all that a Gateway has.
func (s *store) of(g gatewayName) map[objectName]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gateways[g])
}

// find is an object of any Gateway; nil where there is none.
func (s *store) find(namespace string, n objectName) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateways[s.owners[namespace][n]][n]
}

// names are the Gateways that have anything.
func (s *store) names() []gatewayName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []gatewayName
	for g := range s.gateways {
		all = append(all, g)
	}
	return all
}

// written takes what a write answered. Of an object that is gone again already the
// watch will not speak a second time, so what is older than the watch is left to it.
func (s *store) written(kind string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer(object.GetResourceVersion(), s.latest[s.watchOf(kind, object)]) {
		s.record(kind, object, "")
	}
}

// noteVersion notes the version of an event.
func (s *store) noteVersion(by scope, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest[by] == "" || newer(version, s.latest[by]) {
		s.latest[by] = version
	}
}

// put takes an object as it is now.
func (s *store) put(kind string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(kind, object, "")
}

// record takes an object in. What is held in a later version stays, unless that is no later than known, the version up to which
// the object is known to be the newest; "" for its own.
func (s *store) record(kind string, object Object, known string) {
	object = strip(object)
	n, namespace := objectName{kind, object.GetName()}, object.GetNamespace()
	g := gatewayName{namespace, object.GetAnnotations()[annotationGateway]}
	if known == "" {
		known = object.GetResourceVersion()
	}
	if g.name == "" || object.GetAnnotations()[annotationController] != s.controller || foreign(kind, object) || !generatedName(kind, object) {
		s.release(kind, namespace, n.name, known)
		return
	}
	before, had := s.owners[namespace][n]
	if had {
		old := s.gateways[before][n]
		if newer(old.GetResourceVersion(), known) || old.GetResourceVersion() == object.GetResourceVersion() && old.GetUID() == object.GetUID() {
			return
		}
		if before != g {
			s.drop(before, n)
		} else if old.GetUID() != object.GetUID() {
			s.noteGone(g, n)
		}
	}
	if s.gateways[g] == nil {
		s.gateways[g] = map[objectName]Object{}
	}
	if s.owners[namespace] == nil {
		s.owners[namespace] = map[objectName]gatewayName{}
	}
	s.gateways[g][n], s.owners[namespace][n] = object, g
	s.changed(g, kind)
}

// foreign says that something else than a Gateway or a GatewayClass controls an object, whatever its labels are: who makes
// objects after a Service or a Deployment copies these. Pods are of a ReplicaSet.
func foreign(kind string, object Object) bool {
	owner := metav1.GetControllerOf(object)
	return kind != kindPod && owner != nil && owner.Kind != kindGateway && owner.Kind != kindGatewayClass
}

// remove forgets an object that was gone at a version, unless a later one was seen.
func (s *store) remove(kind, namespace, name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(kind, namespace, name, version)
}

func (s *store) release(kind, namespace, name, version string) {
	n := objectName{kind, name}
	if g, ok := s.owners[namespace][n]; ok && !newer(s.gateways[g][n].GetResourceVersion(), version) {
		s.drop(g, n)
	}
}

func (s *store) drop(g gatewayName, n objectName) {
	s.noteGone(g, n)
	delete(s.gateways[g], n)
	delete(s.progress, objectName{n.kind, g.namespace + "/" + n.name})
	if len(s.gateways[g]) == 0 {
		delete(s.gateways, g)
	}
	delete(s.owners[g.namespace], n)
	if len(s.owners[g.namespace]) == 0 {
		delete(s.owners, g.namespace)
	}
	s.changed(g, n.kind)
}

// replace takes a list of one watch as it was at a version. A list that is older than what the watch has reported means that the API
// server's data were restored from a backup: nothing held counts any more.
func (s *store) replace(by scope, objects []Object, version string) {
	type place struct{ namespace, name string }
	s.mu.Lock()
	known := version
	if newer(s.latest[by], version) {
		known = latestVersion
	}
	s.latest[by] = version
	kind, listed := by.kind, map[place]bool{}
	for _, object := range objects {
		listed[place{object.GetNamespace(), object.GetName()}] = true
		s.record(kind, object, known)
	}
	var gone []place
	for namespace, owners := range s.owners {
		if by.namespace != metav1.NamespaceAll && by.namespace != namespace {
			continue
		}
		for n := range owners {
			if p := (place{namespace, n.name}); n.kind == kind && !listed[p] {
				gone = append(gone, p)
			}
		}
	}
	for _, p := range gone {
		s.release(kind, p.namespace, p.name, known)
	}
	s.mu.Unlock()
	s.synced(by)
}

// latestVersion is later than every version.
var latestVersion = strconv.FormatUint(math.MaxUint64, 10)

// newer says that version a is after b. Versions of one kind are numbers that grow.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// strip drops what nobody here reads. Of pods, which are many, little is left.
func strip(object Object) Object {
	object.SetManagedFields(nil)
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, Labels: pod.Labels, Annotations: map[string]string{
				annotationGateway: pod.Annotations[annotationGateway], annotationController: pod.Annotations[annotationController],
			},
		},
		Spec: corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork, NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
			HostIPs: pod.Status.HostIPs, HostIP: pod.Status.HostIP,
			Conditions: pod.Status.Conditions, ContainerStatuses: pod.Status.ContainerStatuses,
		},
	}
	return slim
}

// kindStore takes what a reflector saw of one kind.
type kindStore struct {
	store     *store
	kind      string
	namespace string // that is watched; "" is all
}

func (k kindStore) Add(object any) error { return k.Update(object) }
func (k kindStore) Resync() error        { return nil }

func (k kindStore) Update(object any) error {
	o := object.(Object)
	k.store.noteVersion(scope{k.kind, k.namespace}, o.GetResourceVersion())
	k.store.put(k.kind, o)
	return nil
}

func (k kindStore) Delete(object any) error {
	o := object.(Object)
	k.store.noteVersion(scope{k.kind, k.namespace}, o.GetResourceVersion())
	k.store.remove(k.kind, o.GetNamespace(), o.GetName(), o.GetResourceVersion())
	return nil
}

func (k kindStore) Replace(list []any, version string) error {
	objects := make([]Object, len(list))
	for i, object := range list {
		objects[i] = object.(Object)
	}
	k.store.replace(scope{k.kind, k.namespace}, objects, version)
	return nil
}
