package provision

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// workload contains what Deployments and DaemonSets have in common.
type workload struct {
	object   Object
	name     objectName
	template *corev1.PodTemplateSpec
	// wanted is the number of proxies that should run, negative if not known yet, ready how many are ready, and available how many
	// have been for minReadySeconds.
	wanted, ready, available int32
}

// workloadOf returns an object as a workload; ok is false for other kinds.
func workloadOf(object Object) (workload, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		w := workload{o, objectName{kindDeployment, o.Name}, &o.Spec.Template, 1, o.Status.ReadyReplicas, o.Status.AvailableReplicas}
		if o.Spec.Replicas != nil {
			w.wanted = *o.Spec.Replicas
		}
		return w, true
	case *appsv1.DaemonSet:
		w := workload{o, objectName{kindDaemonSet, o.Name}, &o.Spec.Template, o.Status.DesiredNumberScheduled, o.Status.NumberReady, o.Status.NumberAvailable}
		if o.Status.ObservedGeneration < o.Generation {
			w.wanted = -1
		}
		return w, true
	}
	return workload{}, false
}

// serves reports whether proxies of a workload serve, or none are wanted.
func (w workload) serves() bool {
	return w.ready > 0 || w.name.kind == kindDeployment && w.wanted == 0
}

// replaces reports whether a workload has taken the place of another one of its Gateway, so that this one can go: every proxy is available, at
// least as many as spec wants at once. In the network of their nodes two proxies have no room on one node, so those are not waited for that the other one's
// proxies, on so many nodes, keep away.
func (w workload) replaces(other workload, nodes int32, spec *translate.ProxySpec) bool {
	wanted := w.wants(spec)
	switch {
	case wanted < 0, w.name.kind == kindDaemonSet && wanted == 0: // on no node, there would be nothing
		return false
	case shareNodes(w, other):
		return w.available >= wanted-nodes
	}
	return w.available >= wanted
}

// wants returns the number of proxies that should run, negative if not known yet.
func (w workload) wants(spec *translate.ProxySpec) int32 {
	wanted := w.wanted
	if r := spec.Parameters.Replicas; r != nil && wanted >= 0 {
		wanted = max(wanted, *r) // it may just have been changed
	}
	if a := spec.Parameters.Autoscaling; a != nil && a.MinReplicas != nil && wanted >= 0 {
		wanted = max(wanted, *a.MinReplicas) // the autoscaler will set it
	}
	return wanted
}

// shareNodes reports whether two workloads use hostNetwork, so that a node has room for a proxy of only one of them.
func shareNodes(a, b workload) bool {
	return a.template.Spec.HostNetwork && b.template.Spec.HostNetwork
}

// handOver is how far a workload has replaced another one, and since when.
type handOver struct {
	by        objectName
	available int32
	since     time.Time
	replaces  time.Time // since when it has; zero where it has not
	addressed time.Time // since when the addresses are there, too; of a change of the class alone
}

// settleTime is how long a workload must have replaced another one before that is removed. The components that send connections to
// proxies (controllers of EndpointSlices and kube-proxies, or a load balancer) learn of the new ones some time after they are ready,
// and would have none in the meantime.
const settleTime = 10 * time.Second

// settled reports whether by has replaced another workload for settleTime; replaces is the present state.
func (p *Provisioner) settled(g gatewayName, by workload, replaces bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.handOverTo(g, by)
	switch {
	case !replaces:
		h.replaces = time.Time{}
	case h.replaces.IsZero():
		h.replaces = time.Now()
	}
	p.handOvers[g] = h
	return replaces && time.Since(h.replaces) >= p.settleTime
}

// addressesSettled reports whether the addresses that clients are to use instead of those of the Gateway's former class have been there for the grace, so that
// clients could learn of them, or have been waited for as long as mergeHandOver, because there may be no load balancer to assign any. settled must be called before.
func (p *Provisioner) addressesSettled(g gatewayName, by workload, addressed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.handOverTo(g, by)
	switch {
	case !addressed || h.replaces.IsZero():
		h.addressed = time.Time{}
	case h.addressed.IsZero():
		h.addressed = time.Now()
	}
	p.handOvers[g] = h
	return !h.addressed.IsZero() && time.Since(h.addressed) >= p.grace || !h.replaces.IsZero() && time.Since(h.replaces) >= p.mergeHandOver
}

// handOverTo is how far by has come; p.mu is held.
func (p *Provisioner) handOverTo(g gatewayName, by workload) handOver {
	h := p.handOvers[g]
	if h.by != by.name {
		h = handOver{by: by.name}
	}
	if h.since.IsZero() || h.available != by.available {
		h.available, h.since = by.available, time.Now()
	}
	return h
}

// overdue reports whether a workload has made no progress within the progress deadline, and serves as well as the one that it
// replaces. Then only a node that is not ready, or has no room, keeps it from being ready everywhere, and there may always be such a
// node.
func (p *Provisioner) overdue(g gatewayName, by, it workload) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.handOverTo(g, by)
	p.handOvers[g] = h
	return by.available > 0 && (by.available >= it.ready || shareNodes(by, it)) && time.Since(h.since) >= p.deadline
}

func (p *Provisioner) endHandOver(g gatewayName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.handOvers, g)
}

// withoutEnding returns a workload without the ready proxies that are terminating: a DaemonSet counts them, a Deployment does not.
func (w workload) withoutEnding(pods []*corev1.Pod) workload {
	if w.name.kind != kindDaemonSet {
		return w
	}
	for _, pod := range pods {
		if podReady(pod) && pod.DeletionTimestamp != nil {
			w.available--
		}
	}
	return w
}

// podsOf returns the pods of a workload. Those of a Deployment have the label of their ReplicaSet; their owners are not kept.
func (w workload) podsOf(running map[objectName]Object) (pods []*corev1.Pod) {
	for _, object := range running {
		pod, ok := object.(*corev1.Pod)
		if !ok || classOf(pod) != classOf(w.object) {
			continue
		}
		if _, ok := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; ok == (w.name.kind == kindDeployment) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// nodesOf returns the number of nodes of pods.
func nodesOf(pods []*corev1.Pod) int32 {
	nodes := map[string]bool{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = true
		}
	}
	return int32(len(nodes))
}

// formerWorkload is a workload that another one of its Gateway is to replace.
type formerWorkload struct {
	workload
	nodes   int32 // nodes with its proxies
	ofClass bool  // whether it is of the present class
	shares  bool  // whether it shares nodes with the other one
	useless bool  // whether none of its proxies is ready
}

// succession is the workload of a Gateway with those that it is to replace.
type succession struct {
	by       workload
	pods     []*corev1.Pod // of by
	former   map[objectName]formerWorkload
	serving  int  // how many of former have a ready proxy
	shares   bool // whether one of those shares nodes with by
	replaces bool // whether by can replace those now: the same for all of them, since there is one handOver
	made     bool // whether one of those has made room in this pass
}

// successionOf returns the workload of a spec and those of its Gateway that it is to replace.
func successionOf(spec *translate.ProxySpec, running map[objectName]Object, wanted []Object) succession {
	i := slices.IndexFunc(wanted, func(o Object) bool { _, is := workloadOf(o); return is })
	by, _ := workloadOf(wanted[i]) // Objects always returns one
	if live, known := running[by.name]; known {
		by, _ = workloadOf(live)
	} else {
		by.wanted = -1 // it was just created
	}
	r := succession{pods: by.podsOf(running), former: map[objectName]formerWorkload{}}
	r.by = by.withoutEnding(r.pods)
	var (
		other      workload
		sharing    []*corev1.Pod
		ofAnother  bool // one of those that share nodes is of another class
		uselessOne bool // is in the way, and about to be removed
	)
	for n, object := range running {
		w, ok := workloadOf(object)
		if !ok || n == by.name {
			continue
		}
		pods := w.podsOf(running)
		it := formerWorkload{workload: w, nodes: nodesOf(pods), ofClass: classOf(object) == labelValue(spec.Class), shares: shareNodes(by, w)}
		it.useless = w.ready == 0 && !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podReady(pod) && pod.DeletionTimestamp == nil })
		r.former[n] = it
		switch {
		case it.useless:
			uselessOne = uselessOne || it.shares
			continue
		case it.shares:
			other, sharing, r.shares, ofAnother = w, append(sharing, pods...), true, ofAnother || !it.ofClass
		case !r.shares:
			other = w
		}
		r.serving++
	}
	r.replaces = r.serving > 0 && r.by.replaces(other, nodesOf(sharing), spec)
	if r.shares && uselessOne || ofAnother && slices.ContainsFunc(r.pods, starting) {
		r.replaces = false // not all nodes without a proxy of the others have one of by yet
	}
	return r
}

// unproven reports whether a former workload of another class may end proxies only to make room once, because on nodes that it shares no proxy of the
// workload that is to replace it is available: it may never be, for example because its nodeSelector selects no node.
func (r succession) unproven(it formerWorkload, spec *translate.ProxySpec) bool {
	return !it.ofClass && it.shares && r.by.available <= 0 && r.by.wants(spec) != 0
}

// room is the room that was made for a workload of which no proxy was available.
type room struct {
	by    objectName
	whole objectName // the workload that is removed for it; zero if one of several proxies was ended
}

// roomMade reports whether room was made for a workload, other than by the removal of it, which is tried again if it has failed.
func (p *Provisioner) roomMade(g gatewayName, by, it objectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	made, ok := p.rooms[g]
	return ok && made.by == by && made.whole != it
}

func (p *Provisioner) setRoom(g gatewayName, made room) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rooms[g] = made
}

func (p *Provisioner) endRoom(g gatewayName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rooms, g)
}

// takenOver reports whether the workload of a spec has taken the place of those of another one.
func takenOver(spec *translate.ProxySpec, running, former map[objectName]Object) bool {
	kind := kindDeployment
	if spec.Parameters.DaemonSet {
		kind = kindDaemonSet
	}
	by, ok := workloadOf(running[objectName{kind, Name(spec.Name, spec.Class)}])
	if !ok {
		return false
	}
	by = by.withoutEnding(by.podsOf(running))
	for _, object := range former {
		if it, ok := workloadOf(object); ok && !by.replaces(it, nodesOf(it.podsOf(former)), spec) {
			return false
		}
	}
	return true
}

// starting reports whether a proxy may become ready without another one making room for it.
func starting(pod *corev1.Pod) bool {
	return !podReady(pod) && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && unschedulable(pod) == nil
}

// mostReady returns how many proxies of a workload of a Gateway are ready, but for the workload of that name: those of several serve the same requests.
func mostReady(running map[objectName]Object, but objectName) (ready int32) {
	for n, object := range running {
		if w, ok := workloadOf(object); ok && n != but {
			ready = max(ready, w.ready)
		}
	}
	return ready
}
