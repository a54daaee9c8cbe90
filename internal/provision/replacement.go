package provision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// replacement records how far a workload has replaced the former ones of its Gateway.
type replacement struct {
	by        objectName
	available int32
	since     time.Time
	replaces  time.Time // when it had replaced them; zero if it has not
	addressed time.Time // when the Services of the new class also had addresses; used for a change of the class only
}

// settleTime is how long a workload must have replaced another one before that is removed. The components that send connections to
// proxies (controllers of EndpointSlices and kube-proxies, or a load balancer) learn of the new ones some time after they are ready,
// and would have none in the meantime.
const settleTime = 10 * time.Second

// settled reports whether by has replaced another workload for settleTime; replaces is the present state.
func (p *Provisioner) settled(g gatewayName, by workload, replaces bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.replacementBy(g, by)
	switch {
	case !replaces:
		r.replaces = time.Time{}
	case r.replaces.IsZero():
		r.replaces = time.Now()
	}
	return replaces && time.Since(r.replaces) >= p.settleTime
}

// addressesSettled reports whether the addresses that replace those of the Gateway's former class were assigned at least
// the grace period ago, so that clients could learn them, or were waited for as long as mergeTimeout, because there may
// be no load balancer that assigns any. settled must be called first.
func (p *Provisioner) addressesSettled(g gatewayName, by workload, addressed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.replacementBy(g, by)
	switch {
	case !addressed || r.replaces.IsZero():
		r.addressed = time.Time{}
	case r.addressed.IsZero():
		r.addressed = time.Now()
	}
	return !r.addressed.IsZero() && time.Since(r.addressed) >= p.grace || !r.replaces.IsZero() && time.Since(r.replaces) >= p.mergeTimeout
}

// replacementBy returns how far by has come. The caller must hold p.mu.
func (p *Provisioner) replacementBy(g gatewayName, by workload) *replacement {
	r := &p.state(g).replacement
	if r.by != by.name {
		*r = replacement{by: by.name}
	}
	if r.since.IsZero() || r.available != by.available {
		r.available, r.since = by.available, time.Now()
	}
	return r
}

// overdue reports whether a workload has made no progress within the progress deadline, and serves as well as the one that it
// replaces. Then only a node that is not ready, or has no room, keeps it from being ready everywhere, and there may always be such a
// node.
func (p *Provisioner) overdue(g gatewayName, by, it workload) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.replacementBy(g, by)
	return by.available > 0 && (by.available >= it.ready || shareNodes(by, it)) && time.Since(r.since) >= p.deadline
}

// endReplacement drops how far a workload has come; another replacement may begin.
func (p *Provisioner) endReplacement(g gatewayName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state(g).replacement = replacement{}
	p.tidy(g)
}

// formerWorkload is a workload that is to be replaced.
type formerWorkload struct {
	workload
	nodes   int32 // number of nodes with its proxies
	ofClass bool  // it belongs to the present class
	shares  bool  // it shares nodes with the workload that replaces it
	unready bool  // none of its proxies is ready
}

// workloads are the workload that a Gateway's ProxySpec asks for, and the former ones that it replaces.
type workloads struct {
	by       workload
	pods     []*corev1.Pod // of by
	former   map[objectName]formerWorkload
	serving  int  // number of former ones with a ready proxy
	shares   bool // one of these shares nodes with by
	replaces bool // by can replace them now. There is one result for all of them, as there is one replacement.
	madeRoom bool // one of them has made room in this pass
}

// workloadsOf returns the workloads of a Gateway.
func workloadsOf(spec *translate.ProxySpec, running map[objectName]Object, wanted []Object) workloads {
	i := slices.IndexFunc(wanted, func(o Object) bool { _, is := workloadOf(o); return is })
	by, _ := workloadOf(wanted[i]) // Objects always returns one
	if live, known := running[by.name]; known {
		by, _ = workloadOf(live)
	} else {
		by.wanted = -1 // it was just created
	}
	r := workloads{pods: by.podsOf(running), former: map[objectName]formerWorkload{}}
	r.by = by.withoutEnding(r.pods)
	var (
		other      workload
		sharing    []*corev1.Pod
		ofAnother  bool // one of those that share nodes belongs to another class
		unreadyOne bool // one without a ready proxy holds nodes, and will be removed first
	)
	for n, object := range running {
		w, ok := workloadOf(object)
		if !ok || n == by.name {
			continue
		}
		pods := w.podsOf(running)
		it := formerWorkload{workload: w, nodes: nodesOf(pods), ofClass: classOf(object) == labelValue(spec.Class), shares: shareNodes(by, w)}
		it.unready = w.ready == 0 && !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podReady(pod) && pod.DeletionTimestamp == nil })
		r.former[n] = it
		switch {
		case it.unready:
			unreadyOne = unreadyOne || it.shares
			continue
		case it.shares:
			other, sharing, r.shares, ofAnother = w, append(sharing, pods...), true, ofAnother || !it.ofClass
		case !r.shares:
			other = w
		}
		r.serving++
	}
	r.replaces = r.serving > 0 && r.by.replaces(other, nodesOf(sharing), spec)
	if r.shares && unreadyOne || ofAnother && slices.ContainsFunc(r.pods, starting) {
		r.replaces = false // nodes that were freed do not all have a proxy of by yet
	}
	return r
}

// unproven reports whether no proxy of the workload that replaces a former one of another class on shared nodes is
// available. There may never be one, for example because its nodeSelector selects no node, so the former workload may
// make room only once.
func (r workloads) unproven(it formerWorkload, spec *translate.ProxySpec) bool {
	return !it.ofClass && it.shares && r.by.available <= 0 && r.by.wants(spec) != 0
}

// room records that room was made for a workload that had no available proxy; zero if none was.
type room struct {
	by    objectName
	whole objectName // the workload that is removed for it; zero if only one of its proxies was ended
}

// roomMade reports whether room was made for the workload by. The removal of the workload it itself does not count, because
// it is tried again if it has failed.
func (p *Provisioner) roomMade(g gatewayName, by, it objectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.peek(g).room
	return made.by == by && made.whole != it
}

func (p *Provisioner) setRoom(g gatewayName, made room) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state(g).room = made
}

func (p *Provisioner) endRoom(g gatewayName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state(g).room = room{}
	p.tidy(g)
}

// takenOver reports whether the workload of spec has replaced the workloads among former, the objects of another ProxySpec.
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
