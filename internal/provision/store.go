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

// objectName identifies an object within the namespace of its Gateway.
type objectName struct{ kind, name string }

func (n objectName) String() string { return n.kind + " " + n.name }

// store contains the objects that exist, by Gateway. It is safe for concurrent use; the objects in it are never changed. It keeps
// the newest version of each object, so that an older event does not replace the result of a write.
type store struct {
	controller string // objects of other controllers are not stored
	// changed is called with a Gateway whose objects have changed, and the kind. It must not block.
	changed func(gatewayName, string)
	// synced is called each time a kind was listed.
	synced func(scope)
	// split is set if each namespace has its own watch; otherwise one watch covers all.
	split bool

	mu       sync.Mutex
	gateways map[gatewayName]map[objectName]Object
	owners   map[string]map[objectName]gatewayName // by namespace: the Gateway of an object
	progress map[objectName]progress               // of DaemonSets that replace their pods; their names include their namespaces
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

// scope is the scope of one watch: a kind in a namespace, or in all for "".
type scope struct{ kind, namespace string }

// watchOf returns the scope of the watch that reports an object.
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

// of returns all objects of a Gateway.
func (s *store) of(g gatewayName) map[objectName]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gateways[g])
}

// find returns an object of any Gateway; nil if there is none.
func (s *store) find(namespace string, n objectName) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateways[s.owners[namespace][n]][n]
}

// names returns the Gateways with objects.
func (s *store) names() []gatewayName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []gatewayName
	for g := range s.gateways {
		all = append(all, g)
	}
	return all
}

// written records the result of a write. The watch will not report again that an object is gone, so a result that is older than the
// watch is ignored.
func (s *store) written(kind string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer(object.GetResourceVersion(), s.latest[s.watchOf(kind, object)]) {
		s.record(kind, object, "")
	}
}

// noteVersion records the version of an event.
func (s *store) noteVersion(by scope, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest[by] == "" || newer(version, s.latest[by]) {
		s.latest[by] = version
	}
}

// put records the present version of an object.
func (s *store) put(kind string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(kind, object, "")
}

// record records an object. A later version in the store is kept, unless it is not later than known, the version up to which the
// object is known to be the newest; "" stands for its own.
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

// foreign reports whether something other than a Gateway or a GatewayClass controls an object, whatever its labels: labels of a
// Service or a Deployment are copied to objects that are made for it. Pods are controlled by a ReplicaSet.
func foreign(kind string, object Object) bool {
	owner := metav1.GetControllerOf(object)
	return kind != kindPod && owner != nil && owner.Kind != kindGateway && owner.Kind != kindGatewayClass
}

// remove removes an object that was gone at a version, unless a later version is stored.
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

// replace replaces the objects of one watch by a list at a version. A list that is older than what the watch has reported means that
// the API server's data was restored from a backup: then nothing in the store counts any longer.
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

// newer reports whether version a is after b. Versions of one kind are growing numbers.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// strip removes what is not used. Of pods, of which there are many, little remains.
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

// kindStore receives what a reflector reads of one kind.
type kindStore struct {
	store     *store
	kind      string
	namespace string // that is watched; "" means all
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
